//! `job validate`, and what `plan` and `run` refuse before they look for a node.

use crate::home::Home;

const WRONG: &str = r#"version = 1
name = "1fine"
[runtime]
wasm = "./m.wasm"
args = ["{LR}"]
[resources]
memory = 64
gpu = "4090"
[market]
max_price = "1"
[limits]
timeout = "0s"
colour = "red"
"#;

#[test]
fn all_errors_of_a_job_file_come_at_once() {
    let home = Home::new();
    home.write("job.toml", WRONG);
    let run = home.run(&["job", "validate", "-f", "job.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    let lines: Vec<&str> =
        run.stderr.lines().map(|line| line.strip_prefix("error: job.toml:").unwrap_or(line)).collect();
    let places: Vec<&str> = lines.iter().filter_map(|line| line.split([':', '=']).next()).collect();
    assert_eq!(places, ["2", "5", "7", "8", "10", "12", "13"], "{}", run.stderr);
    assert!(run.stderr.contains("did you mean RTX 4090"), "{}", run.stderr);
    assert!(run.stderr.contains("job.toml:7: resources.memory = 64: "), "{}", run.stderr);
    let run = home.run(&["job", "validate", "job.toml", "--json"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.json()["ok"], false);
    assert_eq!(run.json()["errors"].as_array().unwrap().len(), 7);
    assert_eq!(run.error()["nearest"].as_array().unwrap().len(), 7);
}

#[test]
fn a_valid_file_says_how_many_tasks_it_has_and_what_is_not_built() {
    let home = Home::new();
    home.write(
        "job.toml",
        "version = 1\nname = \"t\"\n[runtime]\nimage = \"docker.io/library/python:3.12\"\n[array]\ncount = 3\n",
    );
    let run = home.run(&["job", "validate", "job.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "job.toml is valid: 3 tasks\n"), "{run:?}");
    assert!(run.stderr.contains("warning: job.toml:4: runtime.image: not available yet"), "{}", run.stderr);
    for args in
        [["run", "-f", "job.toml"].as_slice(), &["plan", "-f", "job.toml"], &["job", "run", "-f", "job.toml", "-d"]]
    {
        let run = home.run(args);
        assert_eq!(run.code, Some(2), "{args:?} {run:?}");
        assert!(run.stderr.contains("not available yet: container images"), "{}", run.stderr);
    }
}

#[test]
fn flags_are_judged_like_the_file() {
    let home = Home::new();
    home.write("m.wasm", b"\0asm\x01\0\0\0");
    home.write("job.toml", "version = 1\nname = \"t\"\n[runtime]\nwasm = \"./m.wasm\"\n");
    home.write(
        "job.json",
        "{\"version\": 1, \"name\": \"t\", \"runtime\": {\"wasm\": \"./m.wasm\"},\n\"limits\": {\"timeout\": 5}}",
    );
    home.write("job.yaml", "version: 1\nname: t\nruntime: {wasm: ./m.wasm}\nlimits: {timeout: 5}\n");
    for (args, needle) in [
        (["run", "-f", "job.toml", "--task-timeout", "5"].as_slice(), "limits.timeout = \"5\""),
        (&["plan", "-f", "job.toml", "--cpu", "1..2..3"], "resources.cpu"),
        (&["plan", "-f", "job.toml", "--gpu", "..."], "resources.gpu"),
        (&["plan", "--wasm", "m.wasm", "--budget", "1"], "market.budget"),
        (&["plan", "--wasm", "m.wasm", "--env", "X"], "write NAME=VALUE"),
        (&["plan", "--wasm", "m.wasm", "--input", "X"], "write SOURCE=TARGET"),
        (&["run", "--image", "x:latest"], "latest"),
        (&["run", "-f", "job.json"], "job.json:2: limits.timeout = 5: add a unit"),
        (&["run", "-f", "job.yaml"], "job.yaml:4: limits.timeout = 5: add a unit"),
    ] {
        let run = home.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?} {run:?}");
        assert!(run.stderr.contains(needle), "{args:?}: {}", run.stderr);
    }
    assert_eq!(home.run(&["run", "-f", "none.toml"]).code, Some(3));
}

#[test]
fn a_detached_run_needs_a_node() {
    let home = Home::made();
    home.write("m.wasm", b"\0asm\x01\0\0\0");
    assert_eq!(home.run(&["run", "-d", "--wasm", "m.wasm"]).code, Some(3));
}

#[test]
fn the_examples_are_valid() {
    let home = Home::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    for job in [
        "hello/job.toml",
        "sweep/job.toml",
        "sweep/chart.toml",
        "render/job.toml",
        "render/join.toml",
        "mapreduce/job.toml",
        "mapreduce/reduce.toml",
    ] {
        let run = home.run(&["job", "validate", &format!("{examples}/{job}")]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{job} {run:?}");
    }
}
