//! What really happened, gathered from outside: durable records of all nodes over all time, what was said, what ran.
//!
//! The ledger holds facts and asks the [invariants](crate::invariant) about each new one. It shares no code with the
//! books of the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use souk_matcher::{JobState, Record, Verdict};
use souk_protocol::{
    AttemptEnd, AttemptId, Billed, Control, Credits, Hash, JobId, JobSpec, LeaseEnd, LeaseId, Message, Millis, NodeId,
    Party, Rate, Receipt, Signed, TaskResult, Timestamp, Voucher, codec,
};

use crate::{
    invariant::{self, Fault, Invariant},
    keys::Table,
    network::NodeIndex,
    time::Micros,
};

mod forget;

use forget::Forgotten;

/// Most violations kept of one run; the first is what matters.
const MAX_VIOLATIONS: usize = 32;

/// An invariant that did not hold, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When, in virtual time.
    pub at: Micros,
    /// What was found.
    pub detail: String,
}

/// Facts of a run, and the violations found in them.
#[derive(Debug)]
pub(crate) struct Ledger {
    table: Arc<Table>,
    /// Nodes that do not keep to the rules: nothing is promised to them.
    crooks: BTreeSet<NodeId>,
    once: BTreeMap<OnceKey, Hash>,
    jobs: BTreeMap<JobId, JobFacts>,
    leases: BTreeMap<LeaseId, LeaseFacts>,
    attempts: BTreeMap<AttemptId, AttemptFacts>,
    /// Whether what is over on all sides is checked and forgotten.
    forgets: bool,
    forgotten: Forgotten,
    /// When notice of preemption was given first, by lease: perhaps before its acceptance is durable.
    notices: BTreeMap<LeaseId, Micros>,
    violations: Vec<Violation>,
    checks: u64,
    /// Tasks that are done.
    done: u64,
}

/// What a statement is about: the lease, who states, the kind, and the rest of the key.
type OnceKey = (LeaseId, NodeIndex, u8, Vec<u8>);

#[derive(Debug)]
struct JobFacts {
    renter: NodeId,
    spec: Arc<JobSpec>,
    ended: Option<JobState>,
    ended_at: Micros,
    leases: BTreeSet<LeaseId>,
    /// Vouchered on leases that are forgotten.
    spent: u64,
    done: BTreeMap<(u32, u16), AttemptId>,
    paid: BTreeMap<(u32, u16), AttemptId>,
    /// Attempts that count: what a provider sent back unstarted does not.
    attempts: BTreeMap<(u32, u16), BTreeSet<AttemptId>>,
}

#[derive(Debug)]
struct LeaseFacts {
    job: JobId,
    renter_id: NodeId,
    provider_id: NodeId,
    rate: Rate,
    award: Hash,
    accepted: Hash,
    renter: Side,
    provider: Side,
    billed: Vec<Billed>,
    /// Hashes of the vouchers in the renter's journal.
    journaled: BTreeSet<Hash>,
    /// When it is to begin, if not at once.
    start: Option<Timestamp>,
    /// Whether what runs on it may be stopped, and after which notice.
    notice: (bool, Millis),
    /// Ended because nothing was paid: then what runs is stopped at once.
    unpaid: bool,
}

/// What one side of a lease has in its journal.
#[derive(Debug, Default)]
struct Side {
    state: SideState,
    voucher: Option<(Voucher, Hash)>,
    receipt: Option<Hash>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SideState {
    /// Nothing.
    #[default]
    Absent,
    Open,
    /// A receipt with both signatures, as far as this side can know.
    Receipt,
    /// A one-sided close.
    Left,
}

#[derive(Debug, Default)]
struct AttemptFacts {
    /// The run of its provider in which it was last begun.
    begun: Option<u64>,
    ran: Option<Millis>,
    has_outputs: bool,
    held: bool,
    journaled: bool,
    answered: bool,
    delivered: bool,
    settled: bool,
}

/// What came of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobSum {
    /// How it ended; none if it did not.
    pub(crate) state: Option<JobState>,
    /// When.
    pub(crate) at: Micros,
    /// Tasks that are done.
    pub(crate) done: usize,
    /// Vouchered for it.
    pub(crate) spent: Credits,
}

/// What came of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseSum {
    pub(crate) job: JobId,
    pub(crate) provider: NodeId,
    pub(crate) rate: Rate,
    /// Attempts vouchered for.
    pub(crate) billed: usize,
    /// Their run time.
    pub(crate) run: Millis,
    /// Vouchered.
    pub(crate) spent: Credits,
    /// Whether both sides hold its receipt.
    pub(crate) has_both: bool,
}

impl Ledger {
    /// No facts yet. `table` checks signatures.
    #[must_use]
    pub(crate) fn new(table: Arc<Table>, crooks: BTreeSet<NodeId>, forgets: bool) -> Self {
        Self {
            table,
            crooks,
            once: BTreeMap::new(),
            jobs: BTreeMap::new(),
            leases: BTreeMap::new(),
            attempts: BTreeMap::new(),
            forgets,
            forgotten: Forgotten::default(),
            notices: BTreeMap::new(),
            violations: Vec::new(),
            checks: 0,
            done: 0,
        }
    }

    /// Notes the outcome of a check.
    pub(crate) fn check(&mut self, at: Micros, outcome: Result<(), Fault>) {
        self.checks += 1;
        if let Err(Fault { invariant, detail }) = outcome
            && self.violations.len() < MAX_VIOLATIONS
        {
            self.violations.push(Violation { invariant, at, detail });
        }
    }

    /// What was violated, in the order it was found.
    #[must_use]
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How often an invariant was asked.
    #[must_use]
    pub(crate) const fn checks(&self) -> u64 {
        self.checks
    }

    /// A user has a job: from now on it is owed an end.
    pub(crate) fn submitted(&mut self, renter: NodeId, job: JobId, spec: &Arc<JobSpec>) {
        if self.forgotten.jobs.contains_key(&job) {
            return;
        }
        self.jobs.entry(job).or_insert_with(|| JobFacts {
            renter,
            spec: Arc::clone(spec),
            ended: None,
            ended_at: Micros(0),
            leases: BTreeSet::new(),
            spent: 0,
            done: BTreeMap::new(),
            paid: BTreeMap::new(),
            attempts: BTreeMap::new(),
        });
    }

    /// How a job ended, if it did.
    #[must_use]
    pub(crate) fn ended(&self, job: &JobId) -> Option<JobState> {
        match self.jobs.get(job) {
            Some(facts) => facts.ended,
            None => self.forgotten.jobs.get(job).and_then(|sum| sum.state),
        }
    }

    /// All jobs.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&JobId, JobSum)> {
        let remembered = self.jobs.iter().map(|(job, facts)| (job, self.sum(facts)));
        remembered.chain(self.forgotten.jobs.iter().map(|(job, sum)| (job, *sum)))
    }

    fn sum(&self, facts: &JobFacts) -> JobSum {
        let (state, at, done) = (facts.ended, facts.ended_at, facts.done.len());
        JobSum { state, at, done, spent: Credits(self.spent_on(facts)) }
    }

    fn spent_on(&self, facts: &JobFacts) -> u64 {
        let leases = facts.leases.iter().filter_map(|lease| self.leases.get(lease));
        leases.fold(facts.spent, |sum, lease| sum.saturating_add(lease.vouchered()))
    }

    /// Tasks that are done.
    #[must_use]
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// Tasks of jobs that have not ended and are not done.
    #[must_use]
    pub(crate) fn unfinished(&self) -> u64 {
        let open = self.jobs.values().filter(|facts| facts.ended.is_none());
        open.map(|facts| (facts.spec.task_count() as u64).saturating_sub(facts.done.len() as u64)).sum()
    }

    /// An attempt begins on a machine, in this run of its node.
    pub(crate) fn begun(&mut self, at: Micros, attempt: AttemptId, boot: u64) {
        let facts = self.attempts.entry(attempt).or_default();
        let outcome = invariant::runs_once(&attempt, facts.begun == Some(boot) || facts.delivered);
        facts.begun = Some(boot);
        self.check(at, outcome);
    }

    /// A lease begins on its machine, which has been up since some time, all by its own clock. Whether it was promised
    /// for a set time.
    pub(crate) fn lease_begins(&mut self, at: Micros, lease: &LeaseId, wall: Timestamp, up_since: Timestamp) -> bool {
        let Some(promised) = self.leases.get(lease).and_then(|facts| facts.start) else { return false };
        self.check(at, invariant::reservation_kept(lease, promised, wall, up_since));
        true
    }

    /// An attempt that has run for so long is stopped for somebody else. Whether it is.
    pub(crate) fn preempted(&mut self, at: Micros, attempt: &AttemptId, ran: Millis) -> bool {
        let Some(facts) = self.leases.get(&attempt.lease) else { return false };
        if ran == Millis(0) || facts.unpaid {
            return false;
        }
        let (may, notice) = facts.notice;
        let given = self.notices.get(&attempt.lease).map(|noticed| at.since(*noticed).to_millis());
        self.check(at, invariant::notice_kept(attempt, may, notice, given));
        true
    }

    /// An attempt is over on its machine, after so long.
    pub(crate) fn ran(&mut self, attempt: AttemptId, ran: Millis, has_outputs: bool) {
        self.note(attempt, |facts| {
            facts.ran = Some(ran);
            facts.has_outputs = has_outputs;
        });
    }

    /// Notes something of an attempt, unless its lease is forgotten.
    fn note(&mut self, attempt: AttemptId, change: impl FnOnce(&mut AttemptFacts)) {
        if !self.forgotten.leases.contains(&attempt.lease) {
            change(self.attempts.entry(attempt).or_default());
        }
    }

    /// A renter holds the outputs and logs of an attempt.
    pub(crate) fn held(&mut self, attempt: AttemptId) {
        self.note(attempt, |facts| facts.held = true);
    }

    /// A record of `node` is durable.
    pub(crate) fn durable(&mut self, at: Micros, node: NodeIndex, me: &NodeId, record: &Record) {
        for once in record.once(me) {
            let kind = once.kind;
            let Some(key) = once_key(node, kind, once.key) else { continue };
            if self.forgotten.leases.contains(&key.0) {
                continue;
            }
            let outcome = invariant::no_contradiction(kind, self.once.get(&key), &once.digest);
            self.check(at, outcome);
            self.once.insert(key, once.digest);
        }
        match record {
            Record::JobEnded { job, state, .. } => self.job_ended(at, *job, *state),
            Record::Lease { award, accepted } => self.opened(award, accepted, Party::Renter),
            Record::Accepted { award, accepted } => self.opened(award, accepted, Party::Provider),
            Record::Attempt { job, attempt, .. } => self.attempt(at, *job, *attempt),
            Record::Result { job, result, verdict, run, voucher } => {
                self.result(at, *job, result, *verdict, *run, voucher.as_ref());
            }
            Record::Lost { attempt, .. } => self.note(*attempt, |facts| facts.answered = true),
            Record::Delivered { result } => {
                if let Ok(result) = result.peek() {
                    self.note(result.attempt, |facts| facts.delivered = true);
                }
            }
            Record::Settled { attempt, voucher, .. } => {
                self.note(*attempt, |facts| facts.settled = true);
                if let Some(voucher) = voucher {
                    self.settled(at, attempt, voucher);
                }
            }
            Record::Receipt { provider, renter: Some(renter) } => self.receipt(at, me, provider, renter),
            Record::Close(close) => {
                if let Ok(close) = close.peek()
                    && let Some(facts) = self.leases.get_mut(&close.lease)
                {
                    facts.side(me).state = SideState::Left;
                    self.forget(at, close.lease);
                }
            }
            _ => {}
        }
    }

    fn job_ended(&mut self, at: Micros, job: JobId, state: JobState) {
        let Some(facts) = self.jobs.get_mut(&job) else { return };
        let before = facts.ended.replace(state);
        facts.ended_at = at;
        let missing = (0..facts.spec.task_count()).filter(|task| !facts.done.contains_key(&(*task, 0))).count() as u64;
        let is_right = match state {
            JobState::Succeeded => missing <= u64::from(facts.spec.array.max_failures),
            JobState::Failed => missing > 0,
            JobState::Cancelled | JobState::Expired => true,
            JobState::Bidding | JobState::Placing | JobState::Running | JobState::Verifying => false,
        };
        let fault = |detail| Err(Fault { invariant: Invariant::JobsEnd, detail });
        self.check(
            at,
            match (before, is_right) {
                (Some(before), _) => fault(format!("{job:?} ended as {before:?} and again as {state:?}")),
                (None, false) => fault(format!("{job:?} ended as {state:?} with {missing} tasks without a Done")),
                (None, true) => Ok(()),
            },
        );
        self.forget_job(job);
    }

    fn opened(
        &mut self,
        award: &Signed<souk_protocol::Award>,
        accepted: &Signed<souk_protocol::Accepted>,
        party: Party,
    ) {
        let Ok(document) = award.peek() else { return };
        if self.forgotten.leases.contains(&document.lease) {
            return;
        }
        let facts = self.leases.entry(document.lease).or_insert_with(|| LeaseFacts {
            job: document.job,
            renter_id: document.renter,
            provider_id: document.provider,
            rate: document.rate,
            award: award.hash(),
            accepted: accepted.hash(),
            renter: Side::default(),
            provider: Side::default(),
            billed: Vec::new(),
            journaled: BTreeSet::new(),
            start: (document.start > document.issued).then_some(document.start),
            notice: (souk_matcher::may_stop(&document.terms), document.terms.notice),
            unpaid: false,
        });
        let side = if party == Party::Renter { &mut facts.renter } else { &mut facts.provider };
        side.state = SideState::Open;
        if let Some(job) = self.jobs.get_mut(&document.job) {
            job.leases.insert(document.lease);
        }
    }

    fn attempt(&mut self, at: Micros, job: JobId, attempt: AttemptId) {
        self.note(attempt, |facts| facts.journaled = true);
        let Some(facts) = self.jobs.get_mut(&job) else { return };
        let counted = facts.attempts.entry((attempt.task, attempt.replica)).or_default();
        counted.insert(attempt);
        let outcome = invariant::attempts_bounded(&attempt, counted.len(), facts.spec.retry.attempts);
        self.check(at, outcome);
    }

    fn result(
        &mut self,
        at: Micros,
        job: JobId,
        signed: &Signed<TaskResult>,
        verdict: Verdict,
        run: Millis,
        voucher: Option<&Signed<Voucher>>,
    ) {
        let Ok(result) = signed.verify(&*self.table) else {
            return self.check(at, fault(Invariant::BooksAgree, "a journaled result does not verify"));
        };
        let attempt = result.attempt;
        let facts = self.attempts.entry(attempt).or_default();
        facts.answered = true;
        let (has_outputs, held, ran) = (facts.has_outputs, facts.held, facts.ran);
        let Some(job_facts) = self.jobs.get_mut(&job) else { return };
        let key = (attempt.task, attempt.replica);
        if result.end == AttemptEnd::Preempted && result.run == Millis(0) {
            job_facts.attempts.entry(key).or_default().remove(&attempt);
        }
        // What a job that is over has no use for is paid for and not brought home.
        let wanted = job_facts.ended.is_none();
        if verdict == Verdict::Done {
            self.done += 1;
            let outcome = invariant::one_done(job_facts.done.insert(key, attempt).as_ref(), &attempt);
            self.check(at, outcome);
        }
        if verdict == Verdict::Done || verdict == Verdict::Billed && wanted {
            self.check(at, invariant::paid_results_are_held(&attempt, has_outputs, held));
        }
        let Some(voucher) = voucher else {
            if verdict != Verdict::Unbilled {
                self.check(at, fault(Invariant::PaidOnce, "a billed result has no voucher"));
            }
            return;
        };
        let item = Billed { attempt, result: signed.hash(), run };
        let Some(job_facts) = self.jobs.get_mut(&job) else { return };
        let timeout = job_facts.spec.terms.timeout;
        if verdict == Verdict::Done {
            let outcome = invariant::paid_once(job_facts.paid.insert(key, attempt).as_ref(), &attempt);
            self.check(at, outcome);
        }
        self.check(at, invariant::paid_work_was_done(&item, ran, timeout));
        self.bill(at, item, voucher);
        self.budget(at, &job);
    }

    fn bill(&mut self, at: Micros, item: Billed, signed: &Signed<Voucher>) {
        let Ok(voucher) = signed.verify(&*self.table) else {
            return self.check(at, fault(Invariant::PaidOnce, "a journaled voucher does not verify"));
        };
        let Some(facts) = self.leases.get_mut(&item.attempt.lease) else {
            return self.check(at, fault(Invariant::PaidOnce, "a voucher of no lease"));
        };
        facts.billed.push(item);
        facts.journaled.insert(voucher.hash());
        facts.renter.voucher = Some((voucher.clone().into_document(), voucher.hash()));
        let outcome = invariant::voucher_follows(&voucher, facts.rate, &facts.billed);
        self.check(at, outcome);
    }

    fn budget(&mut self, at: Micros, job: &JobId) {
        let Some(facts) = self.jobs.get(job) else { return };
        if facts.spec.market.budget.is_none() {
            return;
        }
        let outcome = invariant::within_budget(Credits(self.spent_on(facts)), facts.spec.market.budget);
        self.check(at, outcome);
    }

    fn settled(&mut self, at: Micros, attempt: &AttemptId, signed: &Signed<Voucher>) {
        let Some(facts) = self.leases.get_mut(&attempt.lease) else { return };
        let Ok(voucher) = signed.verify(&*self.table) else {
            return self.check(at, fault(Invariant::BooksAgree, "a voucher settled by does not verify"));
        };
        let known = facts.journaled.contains(&voucher.hash());
        // Vouchers are running totals: an older one that comes later changes nothing.
        if facts.provider.voucher.as_ref().is_none_or(|(last, _)| last.number < voucher.number) {
            facts.provider.voucher = Some((voucher.clone().into_document(), voucher.hash()));
        }
        self.check(at, invariant::voucher_is_known(&voucher, known));
    }

    fn receipt(&mut self, at: Micros, me: &NodeId, provider: &Signed<Receipt>, renter: &Signed<Receipt>) {
        let (Ok(receipt), Ok(countersigned)) = (provider.verify(&*self.table), renter.verify(&*self.table)) else {
            return self.check(at, fault(Invariant::ReceiptsAreTrue, "a journaled receipt does not verify"));
        };
        let parties = provider.signer() == receipt.provider
            && renter.signer() == receipt.renter
            && receipt.hash() == countersigned.hash();
        if !parties {
            self.check(at, fault(Invariant::ReceiptsAreTrue, "the two signatures are not those of both sides"));
        }
        let Some(facts) = self.leases.get_mut(&receipt.lease) else {
            return self.check(at, fault(Invariant::ReceiptsAreTrue, "a receipt of no lease"));
        };
        let voucher = facts.renter.voucher.as_ref().map(|(voucher, hash)| (voucher, *hash));
        let outcome =
            invariant::receipt_is_true(&receipt, facts.award, facts.accepted, facts.rate, &facts.billed, voucher);
        let side = facts.side(me);
        side.state = SideState::Receipt;
        side.receipt = Some(receipt.hash());
        self.check(at, outcome);
        self.forget(at, receipt.lease);
    }

    /// `node` says something.
    pub(crate) fn said(&mut self, at: Micros, node: NodeIndex, message: &Message) {
        let Message::Lease(frame) = message else { return };
        let (what, kind, key, said) = match &frame.body {
            Control::Accepted(accepted) => ("acceptance", 2, frame.lease.0.to_vec(), accepted.hash()),
            Control::Show { accepted, .. } => ("acceptance", 2, frame.lease.0.to_vec(), accepted.hash()),
            Control::Result(result) => {
                let attempt = result.peek().ok().and_then(|result| codec::encode(&result.attempt, 64).ok());
                ("result", 3, attempt.unwrap_or_default(), result.hash())
            }
            Control::Done { voucher, .. } => {
                let number = voucher.peek().ok().and_then(|v| codec::encode(&(v.lease, v.number), 64).ok());
                ("voucher", 4, number.unwrap_or_default(), voucher.hash())
            }
            Control::Receipt(receipt) => ("receipt", 5, frame.lease.0.to_vec(), receipt.hash()),
            Control::Notice { .. } => {
                self.notices.entry(frame.lease).or_insert(at);
                return;
            }
            Control::End { end: LeaseEnd::Unpaid, .. } => {
                if let Some(facts) = self.leases.get_mut(&frame.lease) {
                    facts.unpaid = true;
                }
                return;
            }
            _ => return,
        };
        let Some(key) = once_key(node, kind, key) else { return };
        if self.forgotten.leases.contains(&key.0) {
            return;
        }
        let durable = self.once.get(&key);
        let outcome = invariant::journal_before_speaking(what, durable, &said);
        self.check(at, outcome);
    }

    /// Whether every job submitted so far has ended and every lease is closed on both sides.
    #[must_use]
    pub(crate) fn is_at_rest(&self) -> bool {
        let honest = |node: &NodeId| !self.crooks.contains(node);
        self.jobs.values().all(|job| job.ended.is_some() || !honest(&job.renter))
            && self.leases.values().all(|lease| lease.open_at(&self.crooks).next().is_none())
    }

    /// What renters have vouchered to providers, by renter and provider: in the renter's journal and in the provider's.
    #[must_use]
    pub(crate) fn vouchered(&self) -> BTreeMap<(NodeId, NodeId), (Credits, Credits)> {
        let mut sums = self.forgotten.vouchered.clone();
        for facts in self.leases.values() {
            facts.add_to(&mut sums);
        }
        sums
    }

    /// Number of leases that were agreed, and of those that ended with a receipt of both sides.
    #[must_use]
    pub(crate) fn leases(&self) -> (usize, usize) {
        let count = |is: fn(&LeaseFacts) -> bool| self.leases.values().filter(|lease| is(lease)).count();
        (self.forgotten.agreed + count(LeaseFacts::is_agreed), self.forgotten.both + count(LeaseFacts::has_both))
    }

    /// Each lease that was agreed and is not forgotten.
    pub(crate) fn lease_sums(&self) -> impl Iterator<Item = LeaseSum> {
        self.leases.values().filter(|lease| lease.is_agreed()).map(|facts| LeaseSum {
            job: facts.job,
            provider: facts.provider_id,
            rate: facts.rate,
            billed: facts.billed.len(),
            run: Millis(facts.billed.iter().map(|billed| billed.run.0).sum()),
            spent: Credits(facts.vouchered()),
            has_both: facts.has_both(),
        })
    }

    /// All that renters have vouchered.
    #[must_use]
    pub(crate) fn spent(&self) -> Credits {
        Credits(self.leases.values().map(LeaseFacts::vouchered).fold(self.forgotten.spent, u64::saturating_add))
    }
}

/// Where a statement is found. All keys begin with the lease.
fn once_key(node: NodeIndex, kind: u8, mut key: Vec<u8>) -> Option<OnceKey> {
    let rest = key.split_off(key.len().min(16));
    Some((LeaseId(key.try_into().ok()?), node, kind, rest))
}

impl LeaseFacts {
    fn is_agreed(&self) -> bool {
        self.renter.state != SideState::Absent
    }

    fn has_both(&self) -> bool {
        self.renter.state == SideState::Receipt && self.provider.state == SideState::Receipt
    }

    /// By the renter's journal.
    fn vouchered(&self) -> u64 {
        self.renter.voucher.as_ref().map_or(0, |(voucher, _)| voucher.total.0)
    }

    fn add_to(&self, sums: &mut BTreeMap<(NodeId, NodeId), (Credits, Credits)>) {
        let key = (self.renter_id, self.provider_id);
        let total = |side: &Side| side.voucher.as_ref().map(|(voucher, _)| voucher.total);
        let (renter, provider) = (total(&self.renter), total(&self.provider));
        if renter.is_some() || provider.is_some() {
            let sum = sums.entry(key).or_default();
            sum.0 = sum.0.saturating_add(renter.unwrap_or_default());
            sum.1 = sum.1.saturating_add(provider.unwrap_or_default());
        }
    }

    /// The honest sides at which it is open.
    fn open_at(&self, crooks: &BTreeSet<NodeId>) -> impl Iterator<Item = Party> {
        let sides =
            [(Party::Renter, &self.renter, self.renter_id), (Party::Provider, &self.provider, self.provider_id)];
        let open =
            sides.map(|(party, side, id)| (side.state == SideState::Open && !crooks.contains(&id)).then_some(party));
        open.into_iter().flatten()
    }

    /// What `me`, one of its parties, has of it.
    fn side(&mut self, me: &NodeId) -> &mut Side {
        if *me == self.renter_id { &mut self.renter } else { &mut self.provider }
    }
}

fn fault(invariant: Invariant, detail: impl Into<String>) -> Result<(), Fault> {
    Err(Fault { invariant, detail: detail.into() })
}
