//! Capacity over time: what each lease holds from when until when, and what fits beside it.
//!
//! A lease holds its slots from its start on, open-ended until somebody who was promised them later makes it end before.
//! Whatever is accepted has to fit beside everything that was accepted before, at each moment, so no promised start is
//! ever moved: that is conservative backfill (`reference/market.md` 2.4). Times are on the monotonic clock.

use std::collections::BTreeMap;

use souk_protocol::{Bytes, Capacity, LeaseId, MilliCpu, Millis};

/// No end is agreed.
pub const OPEN_ENDED: Millis = Millis::MAX;

/// What a lease holds and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// How much.
    pub amount: Capacity,
    /// From then on.
    pub from: Millis,
    /// Up to then, exclusive; [`OPEN_ENDED`] if nobody else was promised it.
    pub until: Millis,
}

impl Hold {
    fn covers(&self, at: Millis) -> bool {
        self.from <= at && at < self.until
    }
}

/// Amounts do not add up to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the amounts held do not fit a number")]
pub struct TooMuch;

/// Who holds what and when.
#[derive(Debug, Default, Clone)]
pub struct Schedule {
    holds: BTreeMap<LeaseId, Hold>,
    /// Of all holds, whenever they are: it fits a number, so what is held at any moment does.
    sum: Capacity,
}

impl Schedule {
    /// What a lease holds.
    #[must_use]
    pub fn get(&self, lease: &LeaseId) -> Option<&Hold> {
        self.holds.get(lease)
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = (&LeaseId, &Hold)> {
        self.holds.iter()
    }

    /// Adds a hold. One lease has one: a second changes nothing.
    ///
    /// # Errors
    /// [`TooMuch`].
    pub fn insert(&mut self, lease: LeaseId, hold: Hold) -> Result<(), TooMuch> {
        if self.holds.contains_key(&lease) {
            return Ok(());
        }
        self.sum = plus(self.sum, hold.amount).ok_or(TooMuch)?;
        self.holds.insert(lease, hold);
        Ok(())
    }

    /// A hold is over.
    pub fn remove(&mut self, lease: &LeaseId) -> Option<Hold> {
        let hold = self.holds.remove(lease)?;
        self.sum = less(self.sum, hold.amount);
        Some(hold)
    }

    /// A hold ends at `until`, if that is sooner than before. Its start never moves.
    pub fn end_by(&mut self, lease: &LeaseId, until: Millis) {
        if let Some(hold) = self.holds.get_mut(lease) {
            hold.until = hold.until.min(until);
        }
    }

    /// A hold that had an end has none any more: the one it had to end for is gone.
    pub fn open_end(&mut self, lease: &LeaseId) {
        if let Some(hold) = self.holds.get_mut(lease) {
            hold.until = OPEN_ENDED;
        }
    }

    /// What is held at a moment.
    #[must_use]
    pub fn used_at(&self, at: Millis) -> Capacity {
        let covering = self.holds.values().filter(|hold| hold.covers(at));
        covering.fold(Capacity::default(), |sum, hold| plus(sum, hold.amount).unwrap_or(self.sum))
    }

    /// The most that is held of each resource at some moment of `[from, until)`.
    #[must_use]
    pub fn peak(&self, from: Millis, until: Millis) -> Capacity {
        // What is held only grows where a hold begins.
        let begins = self.holds.values().map(|hold| hold.from).filter(|at| *at > from && *at < until);
        begins.fold(self.used_at(from), |most, at| most.zip(self.used_at(at), u64::max))
    }

    /// How long `amount` fits into `total` beside all holds from `from` on: up to when, or `None` if it does not even
    /// fit at that moment.
    #[must_use]
    pub fn fits_until(&self, total: &Capacity, amount: &Capacity, from: Millis) -> Option<Millis> {
        let fits = |at: Millis| plus(self.used_at(at), *amount).is_some_and(|sum| within(&sum, total));
        if !fits(from) {
            return None;
        }
        let later = self.holds.values().map(|hold| hold.from).filter(|at| *at > from && !fits(*at));
        Some(later.min().unwrap_or(OPEN_ENDED))
    }

    /// What is free during all of `[from, until)`.
    #[must_use]
    pub fn free(&self, total: &Capacity, from: Millis, until: Millis) -> Capacity {
        less(*total, self.peak(from, until))
    }

    /// The next moment after `from` at which a hold begins.
    #[must_use]
    pub fn next_begin(&self, from: Millis) -> Option<Millis> {
        self.holds.values().map(|hold| hold.from).filter(|at| *at > from).min()
    }
}

/// `need` so many times, if that fits a number.
#[must_use]
pub fn times(need: &souk_protocol::Requirement, slots: u32) -> Option<Capacity> {
    let slots = u64::from(slots);
    Some(Capacity {
        cpu: MilliCpu(need.cpu.0.checked_mul(slots)?),
        memory: Bytes(need.memory.0.checked_mul(slots)?),
        disk: Bytes(need.disk.0.checked_mul(slots)?),
    })
}

/// The sum of each resource, if it fits a number.
#[must_use]
pub fn plus(a: Capacity, b: Capacity) -> Option<Capacity> {
    Some(Capacity {
        cpu: a.cpu.checked_add(b.cpu)?,
        memory: a.memory.checked_add(b.memory)?,
        disk: a.disk.checked_add(b.disk)?,
    })
}

/// What is left of each resource, zero where more is taken than there is.
#[must_use]
pub fn less(a: Capacity, b: Capacity) -> Capacity {
    a.zip(b, u64::saturating_sub)
}

/// Whether there is at most as much of each resource.
#[must_use]
pub fn within(amount: &Capacity, total: &Capacity) -> bool {
    amount.cpu <= total.cpu && amount.memory <= total.memory && amount.disk <= total.disk
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: Capacity = Capacity { cpu: MilliCpu(4_000), memory: Bytes(4), disk: Bytes(4) };

    fn cores(n: u64) -> Capacity {
        Capacity { cpu: MilliCpu(n * 1_000), memory: Bytes(n), disk: Bytes(n) }
    }

    fn hold(n: u64, from: u64, until: u64) -> Hold {
        Hold { amount: cores(n), from: Millis(from), until: Millis(until) }
    }

    fn id(n: u8) -> LeaseId {
        LeaseId([n; 16])
    }

    fn schedule(holds: &[Hold]) -> Schedule {
        let mut schedule = Schedule::default();
        for (n, hold) in (0u8..).zip(holds) {
            schedule.insert(id(n), *hold).unwrap();
        }
        schedule
    }

    #[test]
    fn what_is_held_is_counted_from_its_start_up_to_its_end() {
        let schedule = schedule(&[hold(1, 0, 100), hold(2, 100, u64::MAX), hold(1, 50, 150)]);
        let at = |at| schedule.used_at(Millis(at)).cpu.0 / 1_000;
        assert_eq!([at(0), at(50), at(99), at(100), at(149), at(150)], [1, 2, 2, 3, 3, 2]);
        assert_eq!(schedule.peak(Millis(0), Millis(100)), cores(2));
        assert_eq!(schedule.peak(Millis(0), Millis(101)), cores(3));
        assert_eq!(schedule.free(&TOTAL, Millis(150), OPEN_ENDED), cores(2));
        assert_eq!(schedule.next_begin(Millis(50)), Some(Millis(100)));
    }

    #[test]
    fn a_gap_before_a_reservation_ends_where_it_begins() {
        let schedule = schedule(&[hold(1, 0, u64::MAX), hold(3, 1_000, u64::MAX)]);
        let until = |n, from| schedule.fits_until(&TOTAL, &cores(n), Millis(from));
        assert_eq!(until(3, 0), Some(Millis(1_000)));
        assert_eq!(until(4, 0), None);
        assert_eq!(until(1, 1_000), None);
        assert_eq!(until(0, 0), Some(OPEN_ENDED));
    }

    #[test]
    fn a_hold_ends_sooner_but_never_later_and_its_start_stays() {
        let mut schedule = schedule(&[hold(4, 10, u64::MAX)]);
        schedule.end_by(&id(0), Millis(500));
        schedule.end_by(&id(0), Millis(900));
        assert_eq!(schedule.get(&id(0)), Some(&hold(4, 10, 500)));
        schedule.open_end(&id(0));
        assert_eq!(schedule.remove(&id(0)), Some(hold(4, 10, u64::MAX)));
        assert_eq!(schedule.remove(&id(0)), None);
        assert_eq!(schedule.sum, Capacity::default());
    }

    #[test]
    fn amounts_that_do_not_add_up_to_a_number_are_refused() {
        let mut schedule = schedule(&[hold(1, 0, 10)]);
        let huge = Hold { amount: Capacity { cpu: MilliCpu(u64::MAX), ..cores(0) }, ..hold(0, 10, 20) };
        assert_eq!(schedule.insert(id(9), huge), Err(TooMuch));
        assert_eq!(schedule.sum, cores(1));
    }

    proptest! {
        /// Whatever comes and goes: what is accepted only where it fits is never more than there is, at no moment.
        #[test]
        fn what_fits_when_it_is_accepted_fits_at_each_moment(
            steps in proptest::collection::vec((0..12u8, 0..5u64, 0..60u64, 1..40u64, 0..4u8), 1..60),
        ) {
            let mut schedule = Schedule::default();
            for (lease, n, from, length, kind) in steps {
                let (from, until) = (Millis(from), Millis(from + length));
                match kind {
                    0 => drop(schedule.remove(&id(lease))),
                    1 => schedule.end_by(&id(lease), until),
                    _ => {
                        let known = schedule.get(&id(lease)).copied();
                        let fits = schedule.fits_until(&TOTAL, &cores(n), from);
                        // The two ways to ask agree.
                        let free = schedule.free(&TOTAL, from, until);
                        prop_assert_eq!(fits.is_some_and(|end| end >= until), within(&cores(n), &free));
                        if fits.is_some_and(|end| end >= until) {
                            schedule.insert(id(lease), Hold { amount: cores(n), from, until }).unwrap();
                        }
                        // What was there before has not moved.
                        if let Some(known) = known {
                            prop_assert_eq!(schedule.get(&id(lease)), Some(&known));
                        }
                    }
                }
                for at in 0..110 {
                    prop_assert!(within(&schedule.used_at(Millis(at)), &TOTAL));
                }
            }
        }
    }
}
