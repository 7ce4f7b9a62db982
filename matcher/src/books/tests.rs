use proptest::prelude::*;
use souk_protocol::{AttemptEnd, Basis, Billed, Bytes, Hash, JobId, LogEnd, Signed, Signer, TaskResult, Text};

use super::*;
use crate::{
    account::LeaseAccount,
    invariant,
    testing::{NETWORK, TestKeys, WALL, slot, terms},
};

const LIMITS: CreditLimits =
    CreditLimits { stranger: Credits(50_000), strangers: Credits(80_000), write_off: Millis(30 * 24 * 3_600_000) };
/// A millisecond costs a micro-credit.
const RATE: Rate = Rate(3_600_000);

struct Pair {
    provider: TestKeys,
    renter: TestKeys,
    lease: LeaseId,
    account: LeaseAccount,
}

impl Pair {
    fn new(renter: u8, lease: u8) -> Self {
        Self {
            provider: TestKeys::new(1),
            renter: TestKeys::new(renter),
            lease: LeaseId([lease; 16]),
            account: LeaseAccount::new(RATE),
        }
    }

    fn books(&self) -> Books {
        Books::new(self.provider.id(), LIMITS)
    }

    fn attempt(&self, task: u32) -> AttemptId {
        AttemptId { lease: self.lease, task, replica: 0, number: 1 }
    }

    fn award(&self) -> Signed<Award> {
        let award = Award {
            lease: self.lease,
            network: NETWORK,
            renter: self.renter.id(),
            provider: self.provider.id(),
            job: JobId([3; 32]),
            basis: Basis::Ask { offer: Hash([4; 32]) },
            requirement: slot(),
            terms: terms(),
            rate: RATE,
            slots: 2,
            start: Timestamp(WALL),
            issued: Timestamp(WALL),
            accept_by: Timestamp(WALL + 2_000),
        };
        Signed::sign(&award, &self.renter).unwrap().into_signed()
    }

    fn accepted(&self) -> Record {
        let award = self.award();
        let accepted = souk_protocol::Accepted {
            lease: self.lease,
            award: award.hash(),
            provider: self.provider.id(),
            renter: self.renter.id(),
            at: Timestamp(WALL),
        };
        let accepted = Signed::sign(&accepted, &self.provider).unwrap().into_signed();
        Record::Accepted { award, accepted }
    }

    fn leased(&self) -> Record {
        let Record::Accepted { award, accepted } = self.accepted() else { unreachable!() };
        Record::Lease { award, accepted }
    }

    fn started(&self, task: u32) -> Record {
        Record::Started { attempt: self.attempt(task), job: JobId([3; 32]) }
    }

    fn result(&self, task: u32, run: u64) -> Signed<TaskResult> {
        let result = TaskResult {
            attempt: self.attempt(task),
            job: JobId([3; 32]),
            provider: self.provider.id(),
            renter: self.renter.id(),
            end: AttemptEnd::Done,
            exit_code: Some(0),
            reason: Text::default(),
            run: Millis(run),
            started: Timestamp(WALL),
            ended: Timestamp(WALL + run),
            stdout: LogEnd::empty(),
            stderr: LogEnd::empty(),
            manifest: Hash([0; 32]),
            manifest_len: 0,
            output: Bytes(0),
            files: 0,
            telemetry: None,
        };
        Signed::sign(&result, &self.provider).unwrap().into_signed()
    }

    /// Bills an attempt: the records of the provider and of the renter.
    fn settled(&mut self, task: u32, run: u64) -> (Record, Record) {
        let result = self.result(task, run);
        self.account.bill(Billed { attempt: self.attempt(task), result: result.hash(), run: Millis(run) }).unwrap();
        let at = Timestamp(WALL + 1_000);
        let voucher = self.account.voucher(self.lease, self.renter.id(), self.provider.id(), at);
        let voucher = Some(Signed::sign(&voucher, &self.renter).unwrap().into_signed());
        let renter = Record::Result {
            job: JobId([3; 32]),
            result,
            verdict: crate::record::Verdict::Done,
            run: Millis(run),
            voucher: voucher.clone(),
        };
        (Record::Settled { attempt: self.attempt(task), run: Millis(run), voucher }, renter)
    }

    fn discharge(&self, nonce: u8, amount: u64) -> Verified<Discharge> {
        let discharge = Discharge {
            creditor: self.provider.id(),
            debtor: self.renter.id(),
            nonce: [nonce; 16],
            amount: Credits(amount),
            at: Timestamp(WALL),
        };
        Signed::sign(&discharge, &self.provider).unwrap()
    }
}

fn apply(books: &mut Books, records: &[Record]) {
    for record in records {
        books.apply(record, &TestKeys::new(1)).unwrap();
        assert_eq!(books.verify(), Vec::<String>::new());
    }
}

#[test]
fn an_attempt_is_reserved_at_its_timeout_then_claimed_then_vouchered() {
    let mut pair = Pair::new(2, 1);
    let (settled, _) = pair.settled(0, 700);
    let renter = pair.renter.id();
    let mut books = pair.books();
    apply(&mut books, &[pair.accepted(), pair.started(0)]);
    assert_eq!(books.exposure(&renter), Credits(60_000));
    apply(&mut books, &[Record::Delivered { result: pair.result(0, 800) }]);
    assert_eq!((books.exposure(&renter), books.claimed(&renter)), (Credits(800), Credits(800)));
    apply(&mut books, &[settled]);
    assert_eq!((books.exposure(&renter), books.claimed(&renter)), (Credits(700), Credits(0)));
    assert_eq!(books.balance(&renter), Balance(700));
    assert_eq!(books.totals().earned, Credits(700));
    let entry = books.history().next_back().unwrap();
    assert_eq!((entry.kind, entry.amount, entry.peer), (HistoryKind::Earned, Credits(700), renter));
}

#[test]
fn takings_are_summed_by_the_hour_and_counted_once() {
    let mut pair = Pair::new(2, 1);
    // An hour and a second of a whole core, vouchered early in the first hour.
    let (settled, _) = pair.settled(0, 3_601_000);
    let mut books = pair.books();
    let delivered = Record::Delivered { result: pair.result(0, 3_601_000) };
    apply(&mut books, &[pair.accepted(), pair.started(0), delivered.clone(), delivered, settled.clone(), settled]);
    let first = HourSum { earned: Credits(3_601_000), busy: 1_000 * 3_600_000, ..HourSum::default() };
    let second = HourSum { billed: 1, busy: 1_000 * 1_000, ..HourSum::default() };
    let hours: Vec<_> = books.takings().collect();
    assert_eq!(hours, [(Timestamp(WALL), first), (Timestamp(WALL + 3_600_000), second)]);
    assert_eq!(core_time(first.busy + second.busy), Millis(3_601_000));
}

#[test]
fn only_a_discharge_frees_a_limit_and_it_counts_once() {
    let mut pair = Pair::new(2, 1);
    let (settled, _) = pair.settled(0, 50_000);
    let renter = pair.renter.id();
    let mut books = pair.books();
    apply(
        &mut books,
        &[pair.accepted(), pair.started(0), Record::Delivered { result: pair.result(0, 50_000) }, settled],
    );
    let blocked = books.may_lend(&renter, Credits(1)).unwrap_err();
    assert_eq!(
        blocked.to_string(),
        "you may owe 0.050000 CR of at most 0.050000 CR (credit.stranger), this may cost 0.000001 CR more"
    );
    assert!(books.discharge(&pair.discharge(7, 20_000)));
    assert!(!books.discharge(&pair.discharge(7, 20_000)));
    assert_eq!(books.room(&renter), Credits(20_000));
    assert_eq!(books.may_lend(&renter, Credits(20_000)), Ok(()));
    assert_eq!(books.balance(&renter), Balance(30_000));
}

#[test]
fn strangers_together_have_a_limit_and_trusted_peers_their_own() {
    let (a, b) = (Pair::new(2, 1), Pair::new(3, 2));
    let mut books = a.books();
    let result = |pair: &Pair| Record::Delivered { result: pair.result(0, 45_000) };
    apply(&mut books, &[a.accepted(), a.started(0), result(&a), b.accepted()]);
    assert_eq!(books.room(&b.renter.id()), Credits(35_000));
    let blocked = books.may_lend(&b.renter.id(), Credits(40_000)).unwrap_err();
    assert!(matches!(blocked, Blocked::Strangers { owed: Credits(45_000), .. }), "{blocked}");
    books.trust(a.renter.id(), Credits(1_000_000));
    assert_eq!(books.strangers(), Credits(0));
    assert_eq!(books.may_lend(&b.renter.id(), Credits(40_000)), Ok(()));
    assert_eq!(books.room(&a.renter.id()), Credits(955_000));
    assert_eq!(books.verify(), Vec::<String>::new());
}

#[test]
fn more_than_half_the_limit_without_a_voucher_stops_new_tasks() {
    let pair = Pair::new(2, 1);
    let renter = pair.renter.id();
    let mut books = pair.books();
    apply(&mut books, &[pair.accepted(), pair.started(0), Record::Delivered { result: pair.result(0, 25_001) }]);
    assert_eq!(books.may_lend(&renter, Credits(10)), Ok(()));
    assert!(matches!(
        books.may_start(&renter, Credits(10)),
        Err(Blocked::Unvouchered { claimed: Credits(25_001), .. })
    ));
}

#[test]
fn an_old_debt_leaves_the_strangers_sum_and_its_key_stays_refused_until_discharged() {
    let pair = Pair::new(2, 1);
    let renter = pair.renter.id();
    let mut books = pair.books();
    apply(&mut books, &[pair.accepted(), pair.started(0), Record::Delivered { result: pair.result(0, 5_000) }]);
    let due = WALL + 5_000 + LIMITS.write_off.0;
    books.age(Timestamp(due - 1));
    assert_eq!(books.strangers(), Credits(5_000));
    books.age(Timestamp(due));
    assert_eq!(books.strangers(), Credits(0));
    assert_eq!(books.may_lend(&renter, Credits(1)), Err(Blocked::WrittenOff { owed: Credits(5_000) }));
    assert!(books.discharge(&pair.discharge(1, 5_000)));
    assert_eq!(books.may_lend(&renter, Credits(1)), Ok(()));
    assert_eq!(books.verify(), Vec::<String>::new());
}

#[test]
fn services_in_return_lower_the_exposure() {
    let mut pair = Pair::new(2, 1);
    let (settled, _) = pair.settled(0, 30_000);
    let mut books = pair.books();
    apply(
        &mut books,
        &[pair.accepted(), pair.started(0), Record::Delivered { result: pair.result(0, 30_000) }, settled],
    );
    // The other way round: node 1 rents of node 2.
    let mut back = Pair::new(1, 9);
    back.provider = TestKeys::new(2);
    let (_, spent) = back.settled(0, 12_000);
    apply(&mut books, &[back.leased(), spent]);
    assert_eq!(books.exposure(&pair.renter.id()), Credits(18_000));
    assert_eq!(books.balance(&pair.renter.id()), Balance(18_000));
    assert_eq!(books.spent(&pair.renter.id()), Credits(12_000));
}

#[test]
fn a_voucher_of_a_strange_signer_or_for_another_lease_is_not_in_the_books() {
    let mut pair = Pair::new(2, 1);
    let (settled, _) = pair.settled(0, 700);
    let mut books = pair.books();
    apply(&mut books, std::slice::from_ref(&settled));
    assert_eq!(books.totals(), Totals::default());
    let Record::Settled { attempt, run, voucher: Some(voucher) } = settled else { unreachable!() };
    let forged = Signed::sign(&voucher.peek().unwrap(), &TestKeys::new(8)).unwrap().into_signed();
    let error = books.apply(&Record::Settled { attempt, run, voucher: Some(forged) }, &TestKeys::new(1)).unwrap_err();
    assert!(error.to_string().contains("no party to it"), "{error}");
}

#[test]
fn what_was_claimed_when_a_lease_was_closed_stays_owed() {
    let pair = Pair::new(2, 1);
    let mut books = pair.books();
    let close = souk_protocol::Close {
        lease: pair.lease,
        by: pair.provider.id(),
        other: pair.renter.id(),
        end: souk_protocol::LeaseEnd::Unpaid,
        vouchered: Credits(0),
        claimed: Credits(800),
        at: Timestamp(WALL + 9),
    };
    let close = Record::Close(Signed::sign(&close, &pair.provider).unwrap().into_signed());
    apply(&mut books, &[pair.accepted(), pair.started(0), Record::Delivered { result: pair.result(0, 800) }, close]);
    assert_eq!(books.exposure(&pair.renter.id()), Credits(800));
    let entry = books.history().next_back().unwrap();
    assert_eq!((entry.kind, entry.amount), (HistoryKind::Unpaid, Credits(800)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Case M9: any order and any repetition of what follows the acceptance leaves the same books.
    #[test]
    fn records_in_any_order_and_repeated_give_the_same_books(
        order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
        again in proptest::collection::vec(0..9usize, 0..9),
    ) {
        let mut pair = Pair::new(2, 1);
        let mut records = Vec::new();
        let mut renters = Vec::new();
        for (task, run) in [(0, 500), (1, 1_500), (2, 333)] {
            let (settled, renter) = pair.settled(task, run);
            records.extend([pair.started(task), Record::Delivered { result: pair.result(task, run) }, settled]);
            renters.push(renter);
        }
        let mut straight = pair.books();
        apply(&mut straight, &[pair.accepted()]);
        apply(&mut straight, &records);
        let mut shuffled = pair.books();
        apply(&mut shuffled, &[pair.accepted()]);
        for index in order.iter().chain(&again) {
            apply(&mut shuffled, &records[*index..=*index]);
        }
        prop_assert_eq!(&shuffled.leases, &straight.leases);
        prop_assert_eq!(shuffled.totals(), straight.totals());
        prop_assert_eq!(shuffled.exposure(&pair.renter.id()), Credits(2_333));

        let mut other = Books::new(pair.renter.id(), LIMITS);
        other.apply(&pair.leased(), &pair.renter).unwrap();
        for renter in renters.iter().rev() {
            other.apply(renter, &pair.renter).unwrap();
        }
        prop_assert_eq!(invariant::books_agree(&shuffled, &other, true), Ok(()));
        prop_assert_eq!(invariant::vouchers_monotone(&records), Ok(()));
    }
}
