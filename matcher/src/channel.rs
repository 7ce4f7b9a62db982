//! The control channel of a lease: numbered, acknowledged, kept until acknowledged, resumable.
//!
//! A transport may lose, repeat or reorder frames and may break; this makes of it an ordered stream of messages. It
//! knows nothing of leases but the id. A restart of either side is a new boot with numbers from 1, and what must
//! survive a restart is repeated by its owner from durable state. When the peer restarts, this side's numbers begin anew
//! too, for the peer has forgotten how many it heard; what was kept for its old run is dropped and repeated likewise.

use std::collections::VecDeque;

use souk_protocol::{Control, LeaseFrame, LeaseId, Millis};

/// Something is said on a lease at least so often, by either side: a third of the silence that makes a peer unknown.
pub(crate) const HEARTBEAT: Millis = Millis(5_000);
/// A message is acknowledged within this time, with the next message if there is one before.
pub(crate) const ACK_WITHIN: Millis = Millis(200);
/// Most messages kept for a peer that does not acknowledge. A lease has at most its slots' tasks under way, so a
/// longer queue means a peer that is gone; the oldest are the ones that matter, so a new one is refused.
const MAX_KEPT: usize = 1_024;
/// First wait before unacknowledged messages are sent again. The transport keeps order and repeats by itself, so this
/// is for broken connections only.
const RESEND_FIRST: Millis = Millis(1_000);
/// Longest wait between two sendings.
const RESEND_MAX: Millis = Millis(8_000);
/// Most frames sent again at once.
const RESEND_BURST: usize = 64;

/// One side of a control channel.
#[derive(Debug, Clone)]
pub struct Channel {
    lease: LeaseId,
    boot: u64,
    /// Whether an earlier run of this side may have spoken on the lease.
    resumed: bool,
    peer_boot: u64,
    next_out: u64,
    kept: VecDeque<(u64, Control)>,
    next_in: u64,
    resend_at: Option<Millis>,
    resend_wait: Millis,
}

/// What a frame brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A message in its turn.
    New(Control),
    /// An unnumbered message, or nothing but an acknowledgement.
    Alive(Control),
    /// A message heard before, or one ahead of its turn: it will be repeated. Acknowledge.
    Again,
    /// The peer started anew: nothing is kept for it any more, so repeat what is durable. The message is the first of
    /// its new boot.
    Restarted(Control),
}

impl Channel {
    /// A fresh channel of this side's `boot`.
    #[must_use]
    pub fn new(lease: LeaseId, boot: u64) -> Self {
        Self {
            lease,
            boot,
            resumed: false,
            peer_boot: 0,
            next_out: 1,
            kept: VecDeque::new(),
            next_in: 1,
            resend_at: None,
            resend_wait: RESEND_FIRST,
        }
    }

    /// The channel of a lease that an earlier run of this side knew.
    ///
    /// Of numbers that are not said to be for this run, some may be for the one before: the peer counts anew when it hears
    /// of this run, so the same number could come twice with different messages. They are not taken.
    #[must_use]
    pub fn resumed(lease: LeaseId, boot: u64) -> Self {
        Self { resumed: true, ..Self::new(lease, boot) }
    }

    /// A frame with a message that is kept until it is acknowledged. `None` if too many are kept already.
    #[must_use]
    pub fn send(&mut self, body: Control, now: Millis) -> Option<LeaseFrame> {
        if self.kept.len() >= MAX_KEPT {
            return None;
        }
        let number = self.next_out;
        self.next_out = self.next_out.saturating_add(1);
        self.kept.push_back((number, body.clone()));
        if self.resend_at.is_none() {
            self.resend_at = Some(now.saturating_add(self.resend_wait));
        }
        Some(self.frame(number, body))
    }

    /// A frame that is not kept: a heartbeat or a resume.
    #[must_use]
    pub fn say(&self, body: Control) -> LeaseFrame {
        self.frame(0, body)
    }

    fn frame(&self, number: u64, body: Control) -> LeaseFrame {
        LeaseFrame {
            lease: self.lease,
            boot: self.boot,
            peer_boot: self.peer_boot,
            number,
            ack: self.next_in.saturating_sub(1),
            body,
        }
    }

    /// Takes a frame of the peer.
    pub fn handle(&mut self, frame: LeaseFrame, now: Millis) -> Heard {
        if frame.boot < self.peer_boot {
            return Heard::Again; // from a run of the peer that is over
        }
        let restarted = frame.boot > self.peer_boot;
        let first_contact = self.peer_boot == 0;
        let for_this_run = frame.peer_boot == self.boot || (frame.peer_boot == 0 && !self.resumed);
        if frame.number != 0 && !for_this_run {
            return Heard::Again; // numbered for a run of this side that is over; the peer will begin anew
        }
        if restarted {
            if frame.number > 1 {
                return Heard::Again; // an earlier one of the new boot is still under way
            }
            self.peer_boot = frame.boot;
            self.next_in = 1;
            if !first_contact {
                self.kept.clear();
                self.next_out = 1;
                self.resend_at = None;
                self.resend_wait = RESEND_FIRST;
            }
        }
        if frame.peer_boot == self.boot {
            self.acknowledge(frame.ack, now);
        }
        if frame.number != 0 {
            if frame.number != self.next_in {
                return Heard::Again;
            }
            self.next_in = self.next_in.saturating_add(1);
        }
        match (restarted && !first_contact, frame.number) {
            (true, _) => Heard::Restarted(frame.body),
            (false, 0) => Heard::Alive(frame.body),
            (false, _) => Heard::New(frame.body),
        }
    }

    fn acknowledge(&mut self, ack: u64, now: Millis) {
        let before = self.kept.len();
        while self.kept.front().is_some_and(|(number, _)| *number <= ack) {
            self.kept.pop_front();
        }
        if self.kept.is_empty() {
            self.resend_at = None;
            self.resend_wait = RESEND_FIRST;
        } else if self.kept.len() < before {
            self.resend_wait = RESEND_FIRST;
            self.resend_at = Some(now.saturating_add(self.resend_wait));
        }
    }

    /// When [`resend`](Self::resend) is due, if anything is unacknowledged.
    #[must_use]
    pub fn resend_at(&self) -> Option<Millis> {
        self.resend_at
    }

    /// The oldest unacknowledged messages once more; the wait until the next time doubles.
    pub fn resend(&mut self, now: Millis) -> Vec<LeaseFrame> {
        if self.kept.is_empty() {
            self.resend_at = None;
            return Vec::new();
        }
        self.resend_wait = Millis(self.resend_wait.0.saturating_mul(2).min(RESEND_MAX.0));
        self.resend_at = Some(now.saturating_add(self.resend_wait));
        self.kept.iter().take(RESEND_BURST).map(|(number, body)| self.frame(*number, body.clone())).collect()
    }

    /// Gives back room that is not needed: little more will be said.
    pub fn shrink(&mut self) {
        self.kept.shrink_to_fit();
    }

    /// Whether another message would be kept.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.kept.len() < MAX_KEPT
    }

    /// Whether everything said has arrived.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancel(n: u32) -> Control {
        Control::Cancel {
            attempt: souk_protocol::AttemptId { lease: LeaseId([1; 16]), task: n, replica: 0, number: 1 },
        }
    }

    fn pair() -> (Channel, Channel) {
        (Channel::new(LeaseId([1; 16]), 10), Channel::new(LeaseId([1; 16]), 20))
    }

    const T: Millis = Millis(0);

    #[test]
    fn a_repeated_frame_is_heard_once() {
        let (mut a, mut b) = pair();
        let frame = a.send(cancel(1), T).unwrap();
        assert_eq!(b.handle(frame.clone(), T), Heard::New(cancel(1)));
        assert_eq!(b.handle(frame, T), Heard::Again);
    }

    #[test]
    fn a_lost_frame_is_sent_again_until_acknowledged() {
        let (mut a, mut b) = pair();
        let _lost = a.send(cancel(1), T).unwrap();
        let second = a.send(cancel(2), T).unwrap();
        assert_eq!(b.handle(second, T), Heard::Again);
        assert_eq!(a.resend_at(), Some(Millis(1_000)));
        let again = a.resend(Millis(1_000));
        let heard: Vec<_> = again.into_iter().map(|frame| b.handle(frame, T)).collect();
        assert_eq!(heard, [Heard::New(cancel(1)), Heard::New(cancel(2))]);
        a.handle(b.say(Control::Heartbeat), T);
        assert!(a.is_settled());
        assert_eq!(a.resend_at(), None);
    }

    #[test]
    fn a_restart_is_noticed_and_numbers_begin_anew() {
        let (mut a, mut b) = pair();
        assert_eq!(b.handle(a.send(cancel(1), T).unwrap(), T), Heard::New(cancel(1)));
        let mut a2 = Channel::new(LeaseId([1; 16]), 11);
        assert_eq!(b.handle(a2.send(cancel(5), T).unwrap(), T), Heard::Restarted(cancel(5)));
        // A late frame of the old boot changes nothing.
        assert_eq!(b.handle(a.send(cancel(9), T).unwrap(), T), Heard::Again);
        // An acknowledgement meant for the old boot does not count for the new one.
        let mut stale = b.say(Control::Heartbeat);
        stale.peer_boot = 10;
        a2.handle(stale, T);
        assert!(!a2.is_settled());
    }

    #[test]
    fn after_a_restart_of_one_side_both_directions_work_again() {
        let (mut a, mut b) = pair();
        for n in 1..=3 {
            assert_eq!(b.handle(a.send(cancel(n), T).unwrap(), T), Heard::New(cancel(n)));
            assert_eq!(a.handle(b.send(cancel(n), T).unwrap(), T), Heard::New(cancel(n)));
        }
        let under_way = b.send(cancel(4), T).unwrap();
        let mut a2 = Channel::new(LeaseId([1; 16]), 11);
        // What was numbered for the run before is not mixed up with the new numbers.
        assert_eq!(a2.handle(under_way, T), Heard::Again);
        assert_eq!(b.handle(a2.say(Control::Resume), T), Heard::Restarted(Control::Resume));
        let repeated = b.send(cancel(4), T).unwrap();
        assert_eq!(repeated.number, 1);
        assert_eq!(a2.handle(repeated, T), Heard::New(cancel(4)));
        assert_eq!(b.handle(a2.send(cancel(5), T).unwrap(), T), Heard::New(cancel(5)));
        assert!(b.is_settled());
    }

    #[test]
    fn a_late_number_for_nobody_in_particular_does_not_take_the_place_of_one_for_this_run() {
        let (mut a, mut b) = pair();
        // Said before anything was heard of b, and still under way when b starts anew.
        let late = a.send(cancel(1), T).unwrap();
        assert_eq!(late.peer_boot, 0);
        assert_eq!(a.handle(b.send(cancel(7), T).unwrap(), T), Heard::New(cancel(7)));
        let mut b2 = Channel::resumed(LeaseId([1; 16]), 21);
        assert_eq!(a.handle(b2.say(Control::Resume), T), Heard::Restarted(Control::Resume));
        let anew = a.send(cancel(2), T).unwrap();
        assert_eq!((anew.number, anew.peer_boot), (1, 21));
        assert_eq!(b2.handle(late, T), Heard::Again);
        assert_eq!(b2.handle(anew, T), Heard::New(cancel(2)));
    }

    #[test]
    fn two_resumed_sides_find_each_other_by_what_is_not_numbered() {
        let (mut a, mut b) = (Channel::resumed(LeaseId([1; 16]), 10), Channel::resumed(LeaseId([1; 16]), 20));
        let first = a.send(cancel(1), T).unwrap();
        assert_eq!(b.handle(first, T), Heard::Again);
        // Which is answered.
        assert_eq!(a.handle(b.say(Control::Heartbeat), T), Heard::Alive(Control::Heartbeat));
        let again = a.resend(Millis(1_000));
        assert_eq!(b.handle(again.into_iter().next().unwrap(), T), Heard::New(cancel(1)));
    }

    #[test]
    fn the_queue_for_a_silent_peer_is_bounded() {
        let (mut a, _) = pair();
        let sent = (0..2_000).filter(|n| a.send(cancel(*n), T).is_some()).count();
        assert_eq!(sent, MAX_KEPT);
        assert_eq!(a.resend(T).len(), RESEND_BURST);
    }
}
