//! Queued tasks to free slots.

use souk_protocol::{Control, JobId, LeaseId, NodeId};

use super::{Renter, reason, work};
use crate::{auction::count, context::Context, event::JobState, job::Job};

impl Renter {
    /// Whether the next task of its job may go to this lease as far as budget and credit are concerned.
    pub(super) fn may_use(&self, id: &LeaseId, cx: &Context<'_>) -> bool {
        let Some(lease) = self.leases.get(id) else { return false };
        let Some(job) = self.jobs.get(&lease.job()) else { return false };
        let step = lease.step();
        if job.budget_left(self.promised(&lease.job())).is_some_and(|left| left < step) {
            return false;
        }
        if lease.trusted {
            return true;
        }
        let limit = self.offers.get(&lease.provider()).map(|offer| offer.stranger_limit.min(offer.strangers_limit));
        let owed = self.known(&lease.provider(), cx.books).owed;
        limit.is_none_or(|limit| owed.saturating_add(step) <= limit)
    }

    /// Attempts that hold a slot or will, on leases that are heard of.
    pub(super) fn placed(&self, id: &JobId) -> u32 {
        let leases = self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id));
        let sum = leases
            .filter(|lease| !lease.unknown)
            .fold(0usize, |sum, lease| sum.saturating_add(lease.busy()).saturating_add(lease.promised.len()));
        count(sum)
    }

    /// The first queued task that this provider does not run already.
    pub(super) fn next_task(&self, job: &Job, provider: &NodeId) -> Option<u32> {
        job.queue()
            .find(|index| job.task(*index).is_some_and(|task| task.open().all(|attempt| attempt.provider != *provider)))
    }

    /// Hands queued tasks to free slots, cheapest slots first, those of providers that stumbled last.
    pub(super) fn assign(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let Some(job) = self.jobs.get(id) else { return };
        if job.first_queued().is_none() {
            return;
        }
        let most = job.spec().array.max_parallel.max(1);
        let mut placed = self.placed(id);
        let placing = self.placing.get(id);
        let second = |provider: &NodeId| placing.is_some_and(|placing| placing.is_second_choice(provider, cx.now.mono));
        let mut usable: Vec<_> = self
            .leases_of(id)
            .into_iter()
            .filter_map(|id| self.leases.get(&id).filter(|lease| lease.free() > 0).map(|lease| (lease, id)))
            .map(|(lease, id)| (second(&lease.provider()), lease.award.rate, id))
            .collect();
        usable.sort();
        for (_, _, lease_id) in usable {
            while placed < most && self.leases.get(&lease_id).is_some_and(|lease| lease.free() > 0) {
                if !self.may_use(&lease_id, cx) || !self.hand_next(id, &lease_id, cx) {
                    break;
                }
                placed = placed.saturating_add(1);
            }
        }
    }

    /// Hands the next queued task to a lease. Whether there was one.
    pub(super) fn hand_next(&mut self, id: &JobId, lease_id: &LeaseId, cx: &mut Context<'_>) -> bool {
        let (Some(job), Some(lease)) = (self.jobs.get(id), self.leases.get(lease_id)) else { return false };
        if !lease.channel.has_room() {
            return false;
        }
        let Some(task) = self.next_task(job, &lease.provider()) else { return false };
        let attempt = job.next_attempt(*lease_id, task);
        let body = match work::work(id, job.spec(), attempt) {
            Ok(body) => body,
            Err(error) => {
                self.unfit(id, task, &error, cx);
                return false;
            }
        };
        if !self.hand_out(id, attempt, Some(cx.now.mono), cx) {
            return false;
        }
        if let Some(lease) = self.leases.get_mut(lease_id) {
            lease.tell(Control::Task(body), cx);
        }
        true
    }

    /// A task of the spec can be run by nobody.
    pub(super) fn unfit(&mut self, id: &JobId, task: u32, error: &work::WorkError, cx: &mut Context<'_>) {
        let because = vec![reason("spec", format!("task {task} cannot be handed out: {error}"), 1, None)];
        self.finish(id, JobState::Failed, because, cx);
    }
}
