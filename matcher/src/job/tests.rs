use std::collections::BTreeMap;

use souk_protocol::{LeaseId, Text};

use super::{task::MAX_UNSTARTED, *};

fn job(tasks: usize, attempts: u32) -> Job {
    let mut spec = crate::testing::job_spec();
    spec.array.tasks = vec![BTreeMap::new(); tasks];
    spec.retry.attempts = attempts;
    Job::new(JobId([1; 32]), Arc::new(spec), Timestamp(0))
}

fn open(job: &mut Job, lease: u8, task: u32) -> AttemptId {
    let id = job.next_attempt(LeaseId([lease; 16]), task);
    job.open_attempt(id, NodeId([lease; 32]), Rate(60_000), Timestamp(1)).unwrap();
    id
}

fn close(job: &mut Job, id: &AttemptId, end: AttemptEnd, verdict: Option<Verdict>) -> Result<bool, Misfit> {
    let closing = Closing { end, verdict, run: Millis(5), reason: String::new(), at: Timestamp(2), result: None };
    job.close_attempt(id, closing)
}

#[test]
fn the_first_done_wins_and_a_second_is_a_misfit() {
    let mut job = job(1, 3);
    let (a, b) = (open(&mut job, 1, 0), open(&mut job, 2, 0));
    assert_eq!((a.number, b.number), (1, 2));
    assert_eq!(close(&mut job, &b, AttemptEnd::Done, Some(Verdict::Done)), Ok(true));
    assert!(close(&mut job, &a, AttemptEnd::Done, Some(Verdict::Done)).is_err());
    assert_eq!(close(&mut job, &a, AttemptEnd::Done, Some(Verdict::Unbilled)), Ok(false));
    assert_eq!(job.outcome().map(|(state, _)| state), Some(JobState::Succeeded));
    crate::invariant::job(&job).unwrap();
}

#[test]
fn lost_attempts_are_tried_again_until_none_is_left() {
    let mut job = job(1, 2);
    let first = open(&mut job, 1, 0);
    close(&mut job, &first, AttemptEnd::Lost, None).unwrap();
    assert_eq!(job.first_queued(), Some(0));
    let second = open(&mut job, 2, 0);
    assert_eq!(close(&mut job, &second, AttemptEnd::Lost, None), Ok(true));
    assert_eq!(job.tasks()[0].state(), TaskState::Failed);
    let (state, because) = job.outcome().unwrap();
    assert_eq!((state, because[0].code.as_str()), (JobState::Failed, "lost"));
}

#[test]
fn what_was_sent_back_unstarted_does_not_use_up_the_attempts_but_is_bounded() {
    let mut job = job(1, 1);
    let mut tries = 0;
    while job.first_queued().is_some() {
        let id = open(&mut job, 1, 0);
        close(&mut job, &id, AttemptEnd::Preempted, Some(Verdict::Unbilled)).unwrap();
        tries += 1;
    }
    assert_eq!(tries, 1 + MAX_UNSTARTED);
    assert_eq!(job.tasks()[0].state(), TaskState::Failed);
}

#[test]
fn a_promised_task_is_not_queued_twice() {
    let mut job = job(1, 3);
    let first = open(&mut job, 1, 0);
    assert!(job.doubt(0));
    job.promise(0);
    close(&mut job, &first, AttemptEnd::Lost, None).unwrap();
    assert_eq!(job.first_queued(), None);
    assert_eq!(job.queued(), 1);
    job.unpromise(0);
    assert!(job.requeue(0));
    assert_eq!(job.first_queued(), Some(0));
}

#[test]
fn what_is_set_aside_follows_the_attempts_under_way() {
    let mut job = job(3, 1);
    let step = job.step(Rate(60_000));
    let ids: Vec<_> = (0..3).map(|task| open(&mut job, 1, task)).collect();
    assert_eq!(job.reserved(), step.checked_mul(3).unwrap());
    close(&mut job, &ids[0], AttemptEnd::Failed, Some(Verdict::Billed)).unwrap();
    assert_eq!(job.reserved(), step.checked_mul(2).unwrap());
    job.end(JobState::Cancelled, Vec::new(), Timestamp(9));
    for id in &ids[1..] {
        close(&mut job, id, AttemptEnd::Cancelled, Some(Verdict::Billed)).unwrap();
    }
    assert_eq!((job.reserved(), job.running()), (Credits(0), 0));
    crate::invariant::job(&job).unwrap();
}

#[test]
fn notes_of_the_same_kind_are_counted() {
    let mut job = job(1, 1);
    for n in 0..40 {
        let text = format!("kind {}", n % 20);
        job.hint(Reason { code: "x".to_owned(), text, count: 1, nearest: None });
    }
    let notes = job.why();
    assert_eq!(notes.len(), MAX_NOTES);
    assert_eq!(notes[0].count, 2);
    assert_eq!(&*Text::<4>::clipped(&notes[0].code), "x");
}
