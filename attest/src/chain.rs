//! The telemetry chain of one attempt: each sample is linked to the one before by hash.

use souk_protocol::{
    AttemptId, Bytes, Checkpoint, GpuSample, Hash, List, MilliCpu, Millis, NodeId, Sample, TaskResult, Timestamp,
    Verified, first_link,
};

/// What was measured at one moment. What could not be measured is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Processor time since the start of the run.
    pub cpu_time: Millis,
    /// Processors in use over the last interval.
    pub cpu: Option<MilliCpu>,
    /// Memory in use.
    pub memory: Option<Bytes>,
    /// Fuel burnt since the start.
    pub fuel: Option<u64>,
    /// GPUs of the lease.
    pub gpus: List<GpuSample, 16>,
}

/// Builds the chain of an attempt.
#[derive(Debug, Clone)]
pub struct Chain {
    head: Hash,
    next: u32,
}

/// Why samples are no continuation of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// A sample is not linked to the one before.
    #[error("sample {number} is not linked to the one before")]
    Broken {
        /// Its number.
        number: u32,
    },
    /// A sample is missing or repeated.
    #[error("sample {found} where {expected} was due")]
    Number {
        /// The number found.
        found: u32,
        /// The number due.
        expected: u32,
    },
    /// Time or processor time runs backwards.
    #[error("sample {number} lies before the one before it")]
    Backwards {
        /// Its number.
        number: u32,
    },
}

impl Chain {
    /// The chain of `attempt`, without samples.
    #[must_use]
    pub fn new(attempt: &AttemptId) -> Self {
        Self { head: first_link(attempt), next: 0 }
    }

    /// Links a reading.
    pub fn push(&mut self, at: Timestamp, reading: Reading) -> Sample {
        let Reading { cpu_time, cpu, memory, fuel, gpus } = reading;
        let sample = Sample { previous: self.head, number: self.next, at, cpu_time, cpu, memory, fuel, gpus };
        self.head = sample.hash();
        self.next = self.next.saturating_add(1);
        sample
    }

    /// Hash of the last sample; `None` before the first.
    #[must_use]
    pub fn head(&self) -> Option<Hash> {
        (self.next > 0).then_some(self.head)
    }
}

/// Follows the chain of an attempt from checkpoint to checkpoint, on the renter's side.
#[derive(Debug, Clone)]
pub struct Follower {
    attempt: AttemptId,
    head: Hash,
    next: u32,
    at: Timestamp,
    cpu_time: Millis,
}

impl Follower {
    /// A follower that has seen nothing.
    #[must_use]
    pub fn new(attempt: AttemptId) -> Self {
        Self { attempt, head: first_link(&attempt), next: 0, at: Timestamp(0), cpu_time: Millis(0) }
    }

    /// The attempt.
    #[must_use]
    pub const fn attempt(&self) -> &AttemptId {
        &self.attempt
    }

    /// Hash of the last sample seen; `None` before the first.
    #[must_use]
    pub fn head(&self) -> Option<Hash> {
        (self.next > 0).then_some(self.head)
    }

    /// Takes the samples of a checkpoint whose signature was checked. Nothing is taken of one that does not fit.
    ///
    /// # Errors
    /// [`ChainError`]: the provider is to blame.
    pub fn follow(&mut self, checkpoint: &Checkpoint) -> Result<(), ChainError> {
        let mut ahead = self.clone();
        for sample in &checkpoint.samples {
            if sample.number != ahead.next {
                return Err(ChainError::Number { found: sample.number, expected: ahead.next });
            }
            if sample.previous != ahead.head {
                return Err(ChainError::Broken { number: sample.number });
            }
            if sample.at < ahead.at || sample.cpu_time < ahead.cpu_time {
                return Err(ChainError::Backwards { number: sample.number });
            }
            ahead.head = sample.hash();
            ahead.next = ahead.next.saturating_add(1);
            (ahead.at, ahead.cpu_time) = (sample.at, sample.cpu_time);
        }
        *self = ahead;
        Ok(())
    }
}

/// Why the checkpoints of an attempt are not the telemetry of its result. The provider is to blame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// A checkpoint is about another attempt.
    #[error("checkpoint {index} is of attempt {found}, expected {expected}")]
    Attempt {
        /// Its place among the checkpoints, from 0.
        index: usize,
        /// The attempt it names.
        found: AttemptId,
        /// The attempt asked for.
        expected: AttemptId,
    },
    /// A checkpoint is of another provider than the result.
    #[error("checkpoint {index} is of provider {found}, the result is of {expected}")]
    Provider {
        /// Its place among the checkpoints, from 0.
        index: usize,
        /// The provider it names.
        found: NodeId,
        /// The provider of the result.
        expected: NodeId,
    },
    /// The samples of a checkpoint do not continue those before.
    #[error("checkpoint {index}: {source}")]
    Chain {
        /// Its place among the checkpoints, from 0.
        index: usize,
        /// What does not fit.
        source: ChainError,
    },
    /// The chain ends elsewhere than the result says: checkpoints are missing at the end, or the result is of another run.
    #[error("the chain ends at {}, the result names {}", link(*.found), link(*.claimed))]
    Head {
        /// Hash of the last sample there is.
        found: Option<Hash>,
        /// Hash of the last sample by the result.
        claimed: Option<Hash>,
    },
}

fn link(hash: Option<Hash>) -> String {
    hash.map_or_else(|| "no sample".to_owned(), |hash| format!("sample {hash}"))
}

/// Follows all checkpoints of an attempt, in the order they were sent; the hash of the last sample, if there is one.
///
/// # Errors
/// [`TelemetryError::Attempt`] or [`TelemetryError::Chain`].
pub fn verify_checkpoints(
    attempt: &AttemptId,
    checkpoints: &[Verified<Checkpoint>],
) -> Result<Option<Hash>, TelemetryError> {
    let mut follower = Follower::new(*attempt);
    for (index, checkpoint) in checkpoints.iter().enumerate() {
        if checkpoint.attempt != *attempt {
            return Err(TelemetryError::Attempt { index, found: checkpoint.attempt, expected: *attempt });
        }
        follower.follow(checkpoint).map_err(|source| TelemetryError::Chain { index, source })?;
    }
    Ok(follower.head())
}

/// Checks that `checkpoints` are the whole telemetry of a result: one chain of its provider, up to the sample it names.
///
/// # Errors
/// [`TelemetryError`]: the provider is to blame, or checkpoints were lost on this side.
pub fn verify_telemetry(result: &TaskResult, checkpoints: &[Verified<Checkpoint>]) -> Result<(), TelemetryError> {
    let foreign = checkpoints.iter().enumerate().find(|(_, checkpoint)| checkpoint.provider != result.provider);
    if let Some((index, checkpoint)) = foreign {
        return Err(TelemetryError::Provider { index, found: checkpoint.provider, expected: result.provider });
    }
    let found = verify_checkpoints(&result.attempt, checkpoints)?;
    if found == result.telemetry { Ok(()) } else { Err(TelemetryError::Head { found, claimed: result.telemetry }) }
}

#[cfg(test)]
mod tests {
    use souk_protocol::{AttemptEnd, JobId, Key, LeaseId, LogEnd, Signed, Signer, Text};

    use super::*;

    fn attempt(task: u32) -> AttemptId {
        AttemptId { lease: LeaseId([1; 16]), task, replica: 0, number: 1 }
    }

    fn samples(attempt: &AttemptId, count: u64) -> Vec<Sample> {
        let mut chain = Chain::new(attempt);
        (0..count)
            .map(|i| chain.push(Timestamp(1_000 * i), Reading { cpu_time: Millis(900 * i), ..Reading::default() }))
            .collect()
    }

    fn checkpoint(samples: &[Sample]) -> Checkpoint {
        let samples = List::try_from(samples.to_vec()).unwrap();
        Checkpoint { attempt: attempt(1), provider: NodeId([2; 32]), samples }
    }

    #[test]
    fn a_chain_is_followed_over_checkpoints() {
        let all = samples(&attempt(1), 5);
        let mut follower = Follower::new(attempt(1));
        follower.follow(&checkpoint(&all[..2])).unwrap();
        follower.follow(&checkpoint(&all[2..])).unwrap();
        assert_eq!(follower.head(), Some(all[4].hash()));
    }

    #[test]
    fn a_changed_missing_or_foreign_sample_is_noticed_and_nothing_is_taken() {
        let all = samples(&attempt(1), 4);
        let mut follower = Follower::new(attempt(1));
        let mut changed = all.clone();
        changed[1].cpu_time = Millis(1);
        assert_eq!(follower.follow(&checkpoint(&changed)), Err(ChainError::Broken { number: 2 }));
        assert_eq!(follower.head(), None);
        let gap = [all[0].clone(), all[2].clone()];
        assert_eq!(follower.follow(&checkpoint(&gap)), Err(ChainError::Number { found: 2, expected: 1 }));
        let foreign = samples(&attempt(2), 1);
        assert_eq!(follower.follow(&checkpoint(&foreign)), Err(ChainError::Broken { number: 0 }));
    }

    fn provider() -> Key {
        Key::from_seed(&[2; 32])
    }

    fn signed(key: &Key, task: u32, samples: &[Sample]) -> Verified<Checkpoint> {
        let samples = List::try_from(samples.to_vec()).unwrap();
        Signed::sign(&Checkpoint { attempt: attempt(task), provider: key.id(), samples }, key).unwrap()
    }

    fn result(telemetry: Option<Hash>) -> TaskResult {
        TaskResult {
            attempt: attempt(1),
            job: JobId([4; 32]),
            provider: provider().id(),
            renter: NodeId([5; 32]),
            end: AttemptEnd::Done,
            exit_code: Some(0),
            reason: Text::default(),
            run: Millis(4_000),
            started: Timestamp(0),
            ended: Timestamp(4_000),
            stdout: LogEnd::empty(),
            stderr: LogEnd::empty(),
            manifest: Hash([0; 32]),
            manifest_len: 0,
            output: Bytes(0),
            files: 0,
            telemetry,
        }
    }

    #[test]
    fn the_whole_chain_leads_to_the_sample_that_the_result_names() {
        let all = samples(&attempt(1), 4);
        let checkpoints = [signed(&provider(), 1, &all[..3]), signed(&provider(), 1, &all[3..])];
        let head = Some(all[3].hash());
        assert_eq!(verify_checkpoints(&attempt(1), &checkpoints), Ok(head));
        assert_eq!(verify_telemetry(&result(head), &checkpoints), Ok(()));
        assert_eq!(verify_telemetry(&result(None), &[]), Ok(()));
    }

    #[test]
    fn a_chain_that_was_cut_reordered_or_mixed_is_refused() {
        let all = samples(&attempt(1), 4);
        let head = Some(all[3].hash());
        let (first, second) = (signed(&provider(), 1, &all[..2]), signed(&provider(), 1, &all[2..]));
        let cut = verify_telemetry(&result(head), std::slice::from_ref(&first));
        assert_eq!(cut, Err(TelemetryError::Head { found: Some(all[1].hash()), claimed: head }));
        let none = verify_telemetry(&result(head), &[]).unwrap_err().to_string();
        assert!(none.starts_with("the chain ends at no sample, the result names sample "), "{none}");
        let source = ChainError::Number { found: 2, expected: 0 };
        let reordered = verify_telemetry(&result(head), &[second.clone(), first.clone()]);
        assert_eq!(reordered, Err(TelemetryError::Chain { index: 0, source }));
        let source = ChainError::Number { found: 0, expected: 2 };
        let repeated = verify_telemetry(&result(head), &[first.clone(), first.clone(), second.clone()]);
        assert_eq!(repeated, Err(TelemetryError::Chain { index: 1, source }));
        let other = signed(&provider(), 2, &samples(&attempt(2), 1));
        let mixed = verify_checkpoints(&attempt(1), &[first.clone(), other]);
        assert_eq!(mixed, Err(TelemetryError::Attempt { index: 1, found: attempt(2), expected: attempt(1) }));
        let stranger = Key::from_seed(&[9; 32]);
        let foreign = verify_telemetry(&result(head), &[first, signed(&stranger, 1, &all[2..])]);
        let expected = TelemetryError::Provider { index: 1, found: stranger.id(), expected: provider().id() };
        assert_eq!(foreign, Err(expected));
    }

    #[test]
    fn time_that_runs_backwards_is_noticed() {
        let mut chain = Chain::new(&attempt(1));
        let early = chain.push(Timestamp(5_000), Reading { cpu_time: Millis(10), ..Reading::default() });
        let late = chain.push(Timestamp(4_999), Reading { cpu_time: Millis(10), ..Reading::default() });
        let mut follower = Follower::new(attempt(1));
        assert_eq!(follower.follow(&checkpoint(&[early, late])), Err(ChainError::Backwards { number: 1 }));
    }
}
