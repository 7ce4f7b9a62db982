//! This node's own capacity, before the market is asked.

use souk_protocol::{Basis, DeclineCode, Hash, JobId, Local, Millis, Rate};

use super::{Renter, reason};
use crate::{context::Context, desk::Refusal, event::AuctionReport, local};

impl Renter {
    /// Takes free slots of this node itself for a job that may run here. Slots still wanted afterwards, and whether the
    /// market may be asked for them.
    pub(super) fn award_local(&mut self, id: &JobId, wanted: u32, cx: &mut Context<'_>) -> (u32, bool) {
        let Some(local) = self.jobs.get(id).map(|job| job.spec().market.local) else { return (0, false) };
        let only = local == Local::Only;
        let me = cx.me();
        let passed_over = self.placing.get(id).is_none_or(|placing| placing.passes_over(&me, cx.now.mono));
        let fresh = self.jobs.get(id).is_some_and(|job| self.next_task(job, &me).is_some());
        let slots = if passed_over || !fresh { None } else { self.local_slots(id, cx) };
        if let Some(Ok(slots)) = slots {
            let slots = slots.min(wanted);
            // There is no offer to take: a node's word to itself needs none.
            let basis = Basis::Ask { offer: Hash([0; 32]) };
            let round = self.placing.get(id).map_or(0, |placing| placing.round);
            let report = AuctionReport {
                round,
                by_ask: true,
                invited: 1,
                bids: vec![(me, Rate::ZERO, slots, true)],
                declines: Vec::new(),
                silent: 0,
                window: Millis::ZERO,
            };
            self.reported(id, report, cx);
            self.send_award(id, me, basis, Rate::ZERO, (slots, cx.now.wall), cx);
            return (self.wanted(id), !only);
        }
        if only {
            self.nothing_local(id, slots.and_then(Result::err), passed_over, cx);
        }
        (wanted, !only)
    }

    /// Slots of this node that are free for a job now, or why there are none. `None` if it may not run here.
    pub(super) fn local_slots(&self, id: &JobId, cx: &Context<'_>) -> Option<Result<u32, Refusal>> {
        let spec = self.jobs.get(id)?.spec();
        if spec.market.local == Local::Never {
            return None;
        }
        Some(local::slots(cx.me(), cx.local?, &spec.requirement, &spec.terms, cx.now))
    }

    /// A job that may run nowhere else finds no room here: it waits, or is given up if waiting will not help.
    fn nothing_local(&mut self, id: &JobId, refusal: Option<Refusal>, passed_over: bool, cx: &mut Context<'_>) {
        let full = passed_over || refusal.as_ref().is_none_or(|refusal| refusal.code == DeclineCode::NoCapacity);
        let (code, nearest) = match refusal {
            Some(refusal) => (refusal.code.word(), Some(refusal.nearest).filter(|text| !text.is_empty())),
            None => ("local", None),
        };
        let text = "local = \"only\": this node itself has no slot for it".to_owned();
        self.nothing(id, full, false, vec![reason(code, text, 1, nearest)], cx);
    }
}
