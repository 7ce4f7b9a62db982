//! The work of this node for others.

use souk_protocol::{
    Announcement, AttemptId, Award, LeaseFrame, LeaseId, List, Millis, NodeId, RunState, Sample, Verified, Work,
};

use crate::{
    context::{Context, Keys},
    event::{Outcome, Policy},
    record::Record,
    trader::ReplayError,
};

/// The provider's side of this node.
#[derive(Debug, Default)]
pub struct Provider {}

impl Provider {
    /// Sells nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    pub(crate) fn apply(&mut self, _record: &Record, _keys: &dyn Keys) -> Result<(), ReplayError> {
        Ok(())
    }
    pub(crate) fn recovered(&mut self, _cx: &mut Context<'_>) {}
    pub(crate) fn wake(&mut self, _cx: &mut Context<'_>) {}
    pub(crate) fn wake_at(&self) -> Option<Millis> {
        None
    }
    pub(crate) fn peer_up(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}
    pub(crate) fn peer_down(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}
    pub(crate) fn send_failed(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}
    pub(crate) fn policy(&mut self, _policy: Policy, _cx: &mut Context<'_>) {}
    pub(crate) fn announce(&mut self, _announcement: Verified<Announcement>, _cx: &mut Context<'_>) {}
    pub(crate) fn award(&mut self, _award: Verified<Award>, _work: Vec<Work>, _cx: &mut Context<'_>) {}
    pub(crate) fn frame(&mut self, _from: NodeId, _frame: LeaseFrame, _cx: &mut Context<'_>) {}
    pub(crate) fn knows(&self, _lease: &LeaseId) -> bool {
        false
    }
    pub(crate) fn running(&mut self, _attempt: AttemptId, _state: RunState, _cx: &mut Context<'_>) {}
    pub(crate) fn ended(&mut self, _attempt: AttemptId, _outcome: Outcome, _cx: &mut Context<'_>) {}
    pub(crate) fn samples(&mut self, _attempt: AttemptId, _samples: List<Sample, 64>, _cx: &mut Context<'_>) {}
    pub(crate) fn drain(&mut self, _cx: &mut Context<'_>) {}
}
