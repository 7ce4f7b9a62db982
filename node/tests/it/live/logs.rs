//! Logs as people read them: with times, in part, and over the restart of their node.

use std::{
    fs::{self, File},
    process::Child,
};

use super::{
    lab::{Lab, Node, eventually, text},
    module,
};

/// Lines the guest writes, one every this many milliseconds.
const LINES: u64 = 12;

/// A job that writes `line a`, `line b` and so on.
fn job(renter: &Node, step: u64) -> String {
    let module = module::lines(&renter.home, LINES, step);
    let wasm = module.to_str().unwrap();
    renter.submit(&["--wasm", wasm, "--budget", "0.02 CR", "--task-timeout", "60s", "--memory", "16MB"])
}

fn expected() -> String {
    ('a'..).take(LINES as usize).map(|letter| format!("line {letter}\n")).collect()
}

/// `souk logs` with its two streams in files.
fn follow(node: &Node, args: &[&str]) -> Child {
    let file = |name| File::create(node.home.path(name)).unwrap();
    let mut command = node.home.command(&[&["logs", "-f"], args].concat());
    command.stdout(file("followed.out")).stderr(file("followed.err")).spawn().unwrap()
}

fn followed(node: &Node) -> (String, String) {
    let read = |name| fs::read_to_string(node.home.path(name)).unwrap();
    (read("followed.out"), read("followed.err"))
}

#[test]
fn a_followed_log_survives_the_death_and_the_stop_of_its_node() {
    let mut lab = Lab::new(1);
    let id = job(&lab.renter, 500);
    let mut child = follow(&lab.renter, &[&id, "--wait", "80s"]);
    eventually("the first lines", || followed(&lab.renter).0.contains("line b\n"));

    lab.renter.kill();
    eventually("the follower says that the node is away", || followed(&lab.renter).1.contains("away"));
    lab.renter.up();
    eventually("it goes on", || followed(&lab.renter).0.contains("line d\n"));

    lab.renter.stop();
    let told =
        |node: &Node| followed(node).1.matches("the node is away; waiting up to 1m20s for it to come back").count();
    eventually("the follower does not take a stop for the end", || told(&lab.renter) == 2);
    lab.renter.up();

    assert_eq!(child.wait().unwrap().code(), Some(0), "{:?}", followed(&lab.renter));
    assert_eq!(followed(&lab.renter).0, expected());
    assert_eq!(told(&lab.renter), 2, "once each time: {:?}", followed(&lab.renter));
    assert_eq!(lab.renter.home.run(&["logs", &id]).stdout, expected());
}

#[test]
fn a_follower_does_not_wait_for_ever() {
    let mut lab = Lab::new(1);
    let id = job(&lab.renter, 2_000);
    let mut child = follow(&lab.renter, &[&id, "--wait", "1s"]);
    eventually("the first line", || followed(&lab.renter).0.contains("line a\n"));
    lab.renter.kill();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    let said = followed(&lab.renter).1;
    assert!(said.contains("error: the node did not come back within 1s\nhint: start it: souk up"), "{said}");
}

#[test]
fn lines_have_times_of_arrival_that_a_restart_keeps() {
    let mut lab = Lab::new(1);
    let id = job(&lab.renter, 50);
    let job = lab.renter.job_until(&id, |job| job["state"] == "succeeded");
    let stamped = |node: &Node, args: &[&str]| node.home.run(&[&["logs", &id, "-t"], args].concat()).stdout;
    let before = stamped(&lab.renter, &[]);
    let lines: Vec<(&str, &str)> = before.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let bare: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    assert_eq!(bare, expected());
    // RFC 3339 with or without milliseconds: seconds are enough to compare with.
    let second = |time: &str| time[..19].to_owned();
    assert!(lines.is_sorted_by_key(|(time, _)| second(time)), "{before}");
    assert!(second(lines[0].0) >= second(text(&job["submitted"])), "{before} {job}");
    assert!(second(lines[11].0) <= second(text(&job["ended"])), "{before} {job}");
    assert_eq!(
        stamped(&lab.renter, &["--tail", "2"]),
        before.lines().skip(10).map(|l| format!("{l}\n")).collect::<String>()
    );

    let json = lab.renter.json(&["logs", &id, "-t", "--tail", "1"]);
    assert_eq!(json["stdout"], "line l\n");
    assert_eq!(json["stdout_lines"], serde_json::json!([{ "offset": "77", "at": lines[11].0 }]));

    lab.renter.kill();
    lab.renter.up();
    assert_eq!(stamped(&lab.renter, &[]), before, "kept over a restart");
    assert_eq!(stamped(&lab.renter, &["--since", "1h"]), before);
    assert_eq!(stamped(&lab.renter, &["--since", "1ms"]), "");
    assert_eq!(lab.renter.home.run(&["logs", "-f", &id, "--tail", "3"]).stdout, "line j\nline k\nline l\n");
    assert_eq!(lab.renter.home.run(&["logs", "-f", &id, "-t"]).stdout, before);
    assert_eq!(
        lab.renter.home.run(&["logs", &id, "--wait", "1s"]).code,
        Some(2),
        "without -f there is nothing to wait for"
    );
}
