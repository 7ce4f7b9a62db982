//! The first job of somebody new, to the last byte and the last millionth of a credit.

use std::fs;

use super::lab::{Lab, micro, path, text};

#[test]
fn the_first_job_gives_exact_output_sound_receipts_and_books_that_agree() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello/job.toml");
    let results = home.path("results");
    let ran = home.run(&["run", "-f", hello, "--to", path(&results), "--timeout", "90s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let jobs = lab.renter.json(&["ps", "-a"]);
    let id = text(&jobs[0]["id"]);
    let line = format!("hello, world! this is task 0 of 1, attempt 1, job {id}\n");
    assert_eq!(ran.stdout, line);
    let written: Vec<_> = fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(written, ["hello.txt"]);
    assert_eq!(fs::read_to_string(results.join("hello.txt")).unwrap(), line);
    assert_eq!(home.run(&["logs", id]).stdout, line);

    let job = lab.renter.job(id);
    let provider = lab.providers[0].json(&["status"])["node"].clone();
    assert_eq!(job["tasks"][0]["attempts"][0]["provider"], provider);
    let receipts = lab.receipts(id);
    assert_eq!((receipts.len(), &receipts[0]["provider"], &receipts[0]["total"]), (1, &provider, &job["cost"]));
    assert_eq!((&receipts[0]["billed"], &receipts[0]["unbilled"]), (&1.into(), &0.into()));
    lab.books_agree(&job["cost"]);
    assert!(micro(&job["cost"]) < 1_000, "milliseconds of one core: {job}");

    // One flipped bit, wherever it is, and the receipt is worth nothing.
    let file = home.path(&format!("exported/{}.receipt", text(&receipts[0]["lease"])));
    let sound = fs::read(&file).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 24) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&file, bytes).unwrap();
        let verdict = home.run(&["attest", "verify", path(&file), "--json"]);
        assert_eq!(verdict.code, Some(9), "byte {at}: {verdict:?}");
        let verdict = verdict.json();
        let failure = &verdict["failures"][0];
        assert_eq!((&verdict["ok"], text(&failure["file"])), (&false.into(), path(&file)), "byte {at}: {verdict}");
        assert!(!text(&failure["reason"]).is_empty(), "byte {at}: {verdict}");
    }
}
