//! One line for each thing, for whoever follows a run.

use souk_matcher::{Notice, Record};
use souk_protocol::{Control, Message};

pub(crate) fn message(message: &Message) -> String {
    match message {
        Message::Announce(_) => "announce".to_owned(),
        Message::Bid(bid) => format!("bid {:?}", bid.peek().map(|bid| (bid.rate, bid.slots))),
        Message::Decline(decline) => format!("decline {decline}"),
        Message::Lost(lost) => format!("lost rank {} over {}", lost.rank, lost.over),
        Message::Award { award, work, .. } => {
            let attempts: Vec<_> = work.iter().map(|work| work.attempt.to_string()).collect();
            format!("award {:?} {attempts:?}", award.peek().map(|award| award.lease))
        }
        Message::Lease(frame) => format!(
            "{:?} boot {}/{} number {} ack {} {}",
            frame.lease,
            frame.boot,
            frame.peer_boot,
            frame.number,
            frame.ack,
            control(&frame.body)
        ),
    }
}

fn control(body: &Control) -> String {
    match body {
        Control::Accepted(_) => "accepted".to_owned(),
        Control::Task(work) => format!("task {}", work.attempt),
        Control::Progress { attempt, state, .. } => format!("progress {attempt} {state:?}"),
        Control::Result(result) => {
            let result = result.peek().map(|result| (result.attempt.to_string(), result.end, result.run.0));
            format!("result {result:?}")
        }
        Control::Done { attempt, run, voucher } => {
            let voucher = voucher.peek().map(|voucher| (voucher.number, voucher.total.0));
            format!("done {attempt} {} ms voucher {voucher:?}", run.0)
        }
        Control::Refused { attempt, reason } => format!("refused {attempt} {reason}"),
        Control::Cancel { attempt } => format!("cancel {attempt}"),
        Control::End { end, reason } => format!("end {end} {reason}"),
        Control::Receipt(receipt) => {
            let sums =
                receipt.peek().map(|receipt| (receipt.billed.len(), receipt.unbilled, receipt.total.0, receipt.end));
            format!("receipt by {} {sums:?}", receipt.signer().short())
        }
        Control::Show { .. } => "show".to_owned(),
        Control::Telemetry(_) => "telemetry".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn record(record: &Record) -> String {
    match record {
        Record::Job { job, .. } => format!("job {job:?}"),
        Record::JobEnded { job, state, because, .. } => format!("job ended {job:?} {state:?} {because:?}"),
        Record::Lease { award, .. } => format!("lease {:?}", award.peek().map(|award| award.lease)),
        Record::Attempt { attempt, .. } => format!("attempt {attempt}"),
        Record::Result { result, verdict, run, voucher, .. } => {
            let result = result.peek().map(|result| (result.attempt.to_string(), result.end));
            let voucher =
                voucher.as_ref().map(|voucher| voucher.peek().map(|voucher| (voucher.number, voucher.total.0)));
            format!("result {result:?} {verdict:?} {} ms voucher {voucher:?}", run.0)
        }
        Record::Lost { attempt, end, reason, .. } => format!("lost {attempt} {end} {reason}"),
        Record::Accepted { award, .. } => format!("accepted {:?}", award.peek().map(|award| award.lease)),
        Record::Started { attempt, .. } => format!("started {attempt}"),
        Record::Delivered { result } => {
            format!(
                "delivered {:?}",
                result.peek().map(|result| (result.attempt.to_string(), result.end, result.run.0))
            )
        }
        Record::Settled { attempt, run, voucher } => {
            let voucher =
                voucher.as_ref().map(|voucher| voucher.peek().map(|voucher| (voucher.number, voucher.total.0)));
            format!("settled {attempt} {} ms voucher {voucher:?}", run.0)
        }
        Record::Receipt { provider, renter } => {
            format!("receipt {:?} both {}", provider.peek().map(|receipt| receipt.lease), renter.is_some())
        }
        Record::Close(close) => format!(
            "close {:?}",
            close.peek().map(|close| (close.lease, close.end, close.vouchered.0, close.claimed.0))
        ),
        Record::Selling { paused } => format!("paused {paused}"),
        Record::Trust { .. } => "trust".to_owned(),
        Record::Ended { lease, end, by } => format!("ended {lease:?} {end} by {by}"),
        Record::Discharge(discharge) => format!("discharge {:?}", discharge.peek().map(|discharge| discharge.amount.0)),
    }
}

pub(crate) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Job { job, state, because } => format!("says job {job:?} {state:?} {because:?}"),
        Notice::LeaseEnded { side, lease, end, by } => format!("says lease {lease:?} ended {end} by {by} side {side}"),
        Notice::Attempt { attempt, .. } => format!("says attempt {attempt}"),
        Notice::Receipt { side, receipt } => format!("says receipt {:?} side {side}", receipt.lease),
        Notice::Declined { reason, .. } => format!("says declined {}", reason.text),
        other => {
            let mut text = format!("says {other:?}");
            text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
            text
        }
    }
}
