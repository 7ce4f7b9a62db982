//! Bids of this node that did not win, and by how much.

use std::collections::{BTreeMap, VecDeque};

use souk_protocol::{JobId, Lost, NodeId, Ppm, Tally, Timestamp};

use super::Provider;
use crate::{context::Context, event::Reason};

/// Lost bids kept, newest jobs first to stay: enough for a look at the last hours of a busy market.
const MAX_KEPT: usize = 1_024;

/// A bid that did not win, as its renter said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outbid {
    /// Who called.
    pub renter: NodeId,
    /// Rank by effective cost, from 1; 0 if the bid did not meet a hard constraint.
    pub rank: u32,
    /// Of how many bids.
    pub of: u32,
    /// By how much its effective cost was above the best.
    pub over: Ppm,
    /// When the auction closed.
    pub at: Timestamp,
}

impl Outbid {
    /// For people: `lost: rank 4 of 9, 12 % over`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.rank {
            0 => format!("lost: of {} bids this one did not meet what was asked", self.of),
            rank => format!("lost: rank {rank} of {}, {} over", self.of, percent(self.over)),
        }
    }
}

/// A share in percent: whole from 10 on, with one place below.
fn percent(share: Ppm) -> String {
    let tenths = share.0 / 1_000;
    if tenths >= 100 { format!("{} %", tenths / 10) } else { format!("{}.{} %", tenths / 10, tenths % 10) }
}

/// The newest lost bid of each job.
#[derive(Debug, Default)]
pub(super) struct Outbids {
    by_job: BTreeMap<JobId, Outbid>,
    order: VecDeque<JobId>,
    count: u64,
}

impl Outbids {
    fn add(&mut self, job: JobId, outbid: Outbid) {
        self.count = self.count.saturating_add(1);
        if self.by_job.insert(job, outbid).is_none() {
            self.order.push_back(job);
        }
        if self.order.len() > MAX_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_job.remove(&oldest);
        }
    }

    pub(super) fn get(&self, job: &JobId) -> Option<&Outbid> {
        self.by_job.get(job)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&JobId, &Outbid)> {
        self.by_job.iter()
    }

    /// How often bids did not win, with the nearest miss.
    pub(super) fn why(&self) -> Option<Reason> {
        let nearest = self.by_job.values().filter(|outbid| outbid.rank > 0).min_by_key(|outbid| outbid.over);
        (self.count > 0).then(|| Reason {
            code: "outbid".to_owned(),
            text: "bids that did not win".to_owned(),
            count: self.count,
            nearest: nearest.map(Outbid::text),
        })
    }
}

/// A renter tells what came of a bid. A proof that does not hold is a lie: the bid was dropped, or another one told.
pub(super) fn lost(provider: &mut Provider, lost: &Lost, tally: &Tally, cx: &mut Context<'_>) {
    let Some(own) = provider.answers.bid(&tally.announcement).and_then(|bid| cx.verify(bid).ok()) else {
        return; // forgotten: it is older than anybody would ask about
    };
    if own.hash() != lost.bid || own.renter != tally.renter || !lost.is_counted(tally) {
        return cx.blame(tally.renter, "a tally that does not count the bid it is about");
    }
    provider.pending.settle(&lost.bid); // others may have those slots
    let Some(job) = provider.desk.bid(&lost.bid).map(|bid| bid.job) else { return };
    let outbid = Outbid { renter: tally.renter, rank: lost.rank, of: tally.bids, over: lost.over, at: tally.at };
    provider.outbids.add(job, outbid);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbid(rank: u32, over: u32) -> Outbid {
        Outbid { renter: NodeId([1; 32]), rank, of: 9, over: Ppm(over), at: Timestamp(0) }
    }

    #[test]
    fn the_distance_is_told_in_percent() {
        assert_eq!(outbid(4, 123_456).text(), "lost: rank 4 of 9, 12 % over");
        assert_eq!(outbid(2, 4_999).text(), "lost: rank 2 of 9, 0.4 % over");
        assert_eq!(outbid(0, 0).text(), "lost: of 9 bids this one did not meet what was asked");
    }

    #[test]
    fn the_newest_of_each_job_is_kept_and_no_more_than_the_bound() {
        let mut outbids = Outbids::default();
        assert_eq!(outbids.why(), None);
        for n in 0..=u16::try_from(MAX_KEPT).unwrap() {
            let [a, b] = n.to_be_bytes();
            let mut id = [0; 32];
            (id[0], id[1]) = (a, b);
            outbids.add(JobId(id), outbid(2, 50_000 + u32::from(n)));
        }
        assert_eq!(outbids.get(&JobId([0; 32])), None);
        let why = outbids.why().unwrap();
        assert_eq!((why.count, why.nearest.as_deref()), (1_025, Some("lost: rank 2 of 9, 5.0 % over")));
    }
}
