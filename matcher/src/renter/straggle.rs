//! Stragglers: near the end of an array, a task that takes much longer than the others gets a second attempt elsewhere.
//! The first Done wins; the other attempt is stopped and not paid for.

use souk_protocol::{JobId, Millis};

use super::{Renter, reason};
use crate::context::Context;

impl Renter {
    /// The attempts whose tasks are to get a second one, each with the time from which on.
    fn stragglers<'a>(&'a self, id: &'a JobId) -> impl Iterator<Item = (u32, Millis)> + 'a {
        let pace = self.jobs.get(id).and_then(|job| Some((job, job.straggles_after()?)));
        pace.into_iter().flat_map(move |(job, limit)| {
            let leases = self.by_job.get(id).into_iter().flatten().filter_map(|lease| self.leases.get(lease));
            let open = leases.filter(|lease| !lease.unknown).flat_map(|lease| &lease.open);
            open.filter(|(attempt, open)| open.result.is_none() && job.may_double(attempt.task))
                .filter_map(move |(attempt, open)| Some((attempt.task, open.sent?.saturating_add(limit))))
        })
    }

    /// When the next task becomes a straggler.
    pub(super) fn straggles_at(&self, id: &JobId) -> Option<Millis> {
        self.stragglers(id).map(|(_, at)| at).min()
    }

    /// Puts stragglers into the queue once more. Whether there are any.
    pub(super) fn double(&mut self, id: &JobId, cx: &Context<'_>) -> bool {
        let due: Vec<u32> = self.stragglers(id).filter(|(_, at)| *at <= cx.now.mono).map(|(task, _)| task).collect();
        let Some(job) = self.jobs.get_mut(id).filter(|_| !due.is_empty()) else { return false };
        let room = job.spec().array.max_parallel.max(1).saturating_sub(job.running());
        for task in due.iter().take(usize::try_from(room).unwrap_or(usize::MAX)) {
            if job.doubt(*task) {
                let text = "second attempts at tasks that take more than twice as long as the others";
                job.hint(reason("straggler", text, 1, None));
            }
        }
        true
    }
}
