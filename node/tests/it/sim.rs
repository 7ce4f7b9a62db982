//! `souk sim` from outside: the same seed gives the same bytes, and what cannot be run or read is named.

use std::{fs, process::Command};

use crate::home::{Home, Run};

const SMALL: [&str; 6] = ["sim", "run", "calm", "--nodes", "20", "--to"];

fn refused(run: &Run, code: i32, parts: &[&str]) {
    assert_eq!(run.code, Some(code), "{run:?}");
    for part in parts {
        assert!(run.stderr.contains(part), "{part:?} is missing: {}", run.stderr);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let home = Home::new();
    let run = |folder: &str, seed: &str| {
        let to = home.path(folder);
        let run = home.run(&[&SMALL[..], &[to.to_str().unwrap(), "--seed", seed, "--seeds", "2"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.starts_with(&format!("simulated (seed {seed}, model: 20 nodes")), "{run:?}");
        (run.stdout, home.read(&format!("{folder}/result.json")), home.read(&format!("{folder}/report.html")))
    };
    let first = run("a", "7");
    assert_eq!(run("b", "7"), first);
    assert_ne!(run("c", "8").1, first.1);
    // Printed again from what was kept.
    let folder = home.path("a");
    let again = home.run(&["sim", "report", folder.to_str().unwrap()]);
    assert_eq!((again.code, again.stdout), (Some(0), first.0));
    let results: serde_json::Value = serde_json::from_str(&first.1).unwrap();
    assert_eq!(home.run(&["sim", "report", folder.to_str().unwrap(), "--json"]).json(), results);
}

#[test]
fn the_library_is_listed_and_each_of_it_can_be_read() {
    let home = Home::new();
    let list = home.run(&["sim", "list", "--json"]).json();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["calm", "crowded", "partition", "owners-return", "gpu-trace", "scale-100k"]);
}

#[test]
fn what_is_no_scenario_is_named_with_a_remedy() {
    let home = Home::new();
    let run = |scenario: &str| home.run(&["sim", "run", scenario]);
    refused(&run("clam"), 3, &["there is no scenario \"clam\"", "souk sim list"]);
    refused(&run("./none.toml"), 3, &["none.toml", "No such file"]);
    refused(&run(home.path("").to_str().unwrap()), 2, &["is no regular file"]);
    let file = home.write("bad.toml", "version = 1\nname = \"x\"\nnodez = 3\n");
    refused(&run(file.to_str().unwrap()), 2, &["bad.toml", "nodez"]);
    let file = home.write("text.toml", b"version = 1\nname = \"\xff\"\n");
    refused(&run(file.to_str().unwrap()), 2, &["not UTF-8 at byte 20"]);
    let file = home.write("large.toml", vec![b'#'; 2 << 20]);
    refused(&run(file.to_str().unwrap()), 2, &["large.toml has more than"]);
}

#[test]
fn a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for() {
    let home = Home::new();
    let pipe = |name: &str| {
        let path = home.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let scenario = pipe("scenario.toml");
    refused(&home.run(&["sim", "run", scenario.to_str().unwrap()]), 2, &["is no regular file"]);
    pipe("result.json");
    refused(&home.run(&["sim", "report", home.path("").to_str().unwrap()]), 2, &["result.json is no regular file"]);
}

#[test]
fn results_that_are_none_are_named() {
    let home = Home::new();
    let report = || home.run(&["sim", "report", home.path("").to_str().unwrap()]);
    refused(&report(), 3, &["result.json", "souk sim run SCENARIO --to FOLDER"]);
    fs::write(home.path("result.json"), "[{\"policy\": 3}]").unwrap();
    refused(&report(), 2, &["result.json is no result of souk sim"]);
}
