//! The jobs of this node.

use std::sync::Arc;

use souk_protocol::{AttemptId, Bid, Decline, JobId, JobSpec, LeaseFrame, LeaseId, Millis, NodeId, Offer, Verified};

use crate::{
    context::{Context, Keys},
    record::Record,
    trader::ReplayError,
};

/// The renter's side of this node.
#[derive(Debug, Default)]
pub struct Renter {}

impl Renter {
    /// No jobs yet.
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
    pub(crate) fn rtt(&mut self, _peer: NodeId, _p95: Millis) {}
    pub(crate) fn offer(&mut self, _offer: Verified<Offer>, _cx: &mut Context<'_>) {}
    pub(crate) fn submit(&mut self, _job: JobId, _spec: Arc<JobSpec>, _cx: &mut Context<'_>) {}
    pub(crate) fn cancel(&mut self, _job: JobId, _cx: &mut Context<'_>) {}
    pub(crate) fn held(&mut self, _attempt: AttemptId, _cx: &mut Context<'_>) {}
    pub(crate) fn not_held(&mut self, _attempt: AttemptId, _reason: &str, _cx: &mut Context<'_>) {}
    pub(crate) fn bid(&mut self, _bid: Verified<Bid>, _cx: &mut Context<'_>) {}
    pub(crate) fn decline(&mut self, _from: NodeId, _decline: Decline, _cx: &mut Context<'_>) {}
    pub(crate) fn frame(&mut self, _from: NodeId, _frame: LeaseFrame, _cx: &mut Context<'_>) {}
    pub(crate) fn shown(&mut self, _from: NodeId, _frame: LeaseFrame, _cx: &mut Context<'_>) {}
    pub(crate) fn knows(&self, _lease: &LeaseId) -> bool {
        false
    }
}
