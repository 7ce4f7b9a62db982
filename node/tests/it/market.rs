//! Two nodes as real processes on loopback: what people do by hand.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::home::{Home, Run, free_port, run};

/// Longest wait for anything; a loaded machine needs some of it.
const PATIENCE: Duration = Duration::from_secs(60);
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");

/// A running `souk up`; killed when dropped.
struct Up {
    child: Child,
    /// The line it says about itself.
    said: serde_json::Value,
}

impl Up {
    fn start(home: &Home) -> Self {
        let mut child =
            home.command(&["up", "--json"]).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, said }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) {
    let done = std::process::Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(done.success());
}

/// A home on loopback with a role.
fn home(role: &str) -> Home {
    let home = Home::new();
    let (port, api) = (free_port(), free_port());
    let text = format!(
        "version = 1\n[node]\nname = \"{role}\"\nrole = \"{role}\"\nprofile = \"lan\"\n[network]\n\
         listen = [\"/ip4/127.0.0.1/udp/{port}/quic-v1\", \"/ip4/127.0.0.1/tcp/{port}\"]\n[api]\nlisten = \"127.0.0.1:{api}\"\n"
    );
    home.write("config/souk.toml", text);
    assert_eq!(home.run(&["init"]).code, Some(0));
    home
}

/// A provider that is up, and the home of a renter that has joined it.
fn market() -> (Up, Home, Home) {
    let provider = home("provider");
    assert_eq!(provider.run(&["network", "new", "--name", "lab", "--open"]).code, Some(0));
    let up = Up::start(&provider);
    let renter = home("renter");
    let file = provider.path("config/network.toml");
    assert_eq!(renter.run(&["network", "join", file.to_str().unwrap()]).code, Some(0));
    (up, provider, renter)
}

/// Runs a command again until it says what is waited for.
fn until(home: &Home, args: &[&str], holds: impl Fn(&Run) -> bool) -> Run {
    let started = Instant::now();
    loop {
        let run = home.run(args);
        if holds(&run) {
            return run;
        }
        assert!(started.elapsed() < PATIENCE, "{args:?}: {run:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn offers_are_known(renter: &Home) {
    until(renter, &["offers", "--json"], |run| run.code == Some(0) && run.json()["matched"] == 1);
}

/// A module that writes a line and then computes for ever.
fn endless(home: &Home) -> String {
    let text = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 8) "started\n")
        (data (i32.const 0) "\08\00\00\00\08\00\00\00")
        (func (export "_start")
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))
            (loop $again (br $again))))"#;
    home.write("endless.wasm", wat::parse_str(text).unwrap()).to_str().unwrap().to_owned()
}

#[test]
fn a_job_goes_from_file_to_receipts() {
    let (up, provider, renter) = market();
    let renter_up = Up::start(&renter);
    offers_are_known(&renter);
    let hello = format!("{EXAMPLES}/hello/job.toml");
    let to = renter.path("results");

    let plan = renter.run(&["plan", "-f", &hello, "--json"]);
    assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""), "{plan:?}");
    assert_eq!(plan.json()["matched"], 1);

    let ran = renter.run(&["run", "-f", &hello, "--to", to.to_str().unwrap(), "--", "world"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("world"), "{ran:?}");
    assert!(ran.stderr.contains("succeeded: 1 task done"), "{ran:?}");
    assert!(fs::read_to_string(to.join("hello.txt")).unwrap().contains("world"));

    let jobs = renter.run(&["ps", "-a", "--json"]).json();
    let id = jobs[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(jobs[0]["state"], "succeeded");
    assert_eq!(renter.run(&["ps", "--json"]).json(), serde_json::json!([]));
    assert_eq!(renter.run(&["ps", "-a", "-q"]).stdout.trim_end(), id);
    let short = &id[..8];
    assert_eq!(renter.run(&["logs", short]).stdout, ran.stdout);
    assert_eq!(renter.run(&["logs", "-f", short]).stdout, ran.stdout);
    assert_eq!(renter.run(&["job", "wait", short]).code, Some(0));
    assert_eq!(renter.run(&["job", "get", "zzzzzzzz"]).code, Some(3));

    let exported = renter.path("receipts");
    let export = ["job", "receipts", short, "--export", exported.to_str().unwrap(), "--json"];
    let receipts = until(&renter, &export, |run| run.code == Some(0) && run.json()[0]["complete"] == true).json();
    let file = exported.join(format!("{}.receipt", receipts[0]["lease"].as_str().unwrap()));
    let verify = |path: &Path| renter.run(&["attest", "verify", path.to_str().unwrap(), "--json"]);
    assert_eq!(verify(&file).json()["ok"], true);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(verify(&file).code, Some(9));

    for args in [
        ["status"].as_slice(),
        &["ps"],
        &["offers"],
        &["peers"],
        &["job", "get", short],
        &["job", "why", short],
        &["job", "outputs", short],
        &["job", "cost", short],
        &["job", "receipts", short],
        &["attest", "show", short],
        &["logs", short],
        &["cancel", short],
        &["node", "why"],
        &["wallet", "balance"],
        &["wallet", "history"],
        &["wallet", "verify"],
    ] {
        let run = renter.run(&[args, ["--json"].as_slice()].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?} {run:?}");
        run.json();
        let run = renter.run(args);
        assert_eq!(run.code, Some(0), "{args:?} {run:?}");
        assert!(!run.stdout.contains('\u{1b}'), "{args:?}");
    }
    for line in renter.run(&["job", "events", short, "--json"]).stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let peers = renter.run(&["peers", "--json"]).json();
    assert_eq!(peers[0]["peer"], up.said["node"]);
    let earned = until(&provider, &["wallet", "history", "--json"], |run| run.json()[0]["kind"] == "earned").json();
    let spent = renter.run(&["wallet", "history", "--json"]).json();
    assert_eq!((&spent[0]["kind"], &spent[0]["amount"]), (&"spent".into(), &earned[0]["amount"]));

    // A second node on the same home is refused with the pid of the first; a clean stop is no failure.
    let second = renter.run(&["up"]);
    assert_eq!(second.code, Some(6), "{second:?}");
    let pid = renter_up.said["pid"].to_string();
    assert!(second.stderr.contains(&format!("runs already, as process {pid}")), "{second:?}");
    renter_up.signal("TERM");
    assert_eq!(renter_up.wait(), Some(0));
    assert_eq!(renter.run(&["status"]).code, Some(3));
    assert_eq!(renter.run(&["store", "verify"]).code, Some(0));
}

#[test]
fn a_run_without_a_node_starts_one_inside_and_leaves_none() {
    let (_up, _provider, renter) = market();
    let hello = format!("{EXAMPLES}/hello/job.toml");
    let ran = renter.run(&["run", "-f", &hello, "--json", "--to", renter.path("out").to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let job = ran.json();
    assert_eq!((&job["state"], &job["tasks"][0]["state"]), (&"succeeded".into(), &"done".into()));
    assert_eq!(job["outputs"]["files"], 1);
    assert_eq!(job["leases"][0]["receipt"], true);
    assert_eq!(renter.run(&["status"]).code, Some(3));
}

#[test]
fn a_job_that_nobody_takes_says_why() {
    let (_up, _provider, renter) = market();
    let hello = format!("{EXAMPLES}/hello/job.toml");
    let ran = renter.run(&["plan", "-f", &hello, "--max-price", "0.000001 CR/h"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stdout.contains("0 of 1 offers match"), "{ran:?}");
    assert!(ran.stdout.contains("near miss"), "{ran:?}");
}

#[test]
fn the_exit_code_of_a_task_passes_through_where_it_is_wanted() {
    let (_up, _provider, renter) = market();
    let text = r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (call $exit (i32.const 7))))"#;
    let module = renter.write("exit.wasm", wat::parse_str(text).unwrap());
    let base =
        ["run", "--wasm", module.to_str().unwrap(), "--budget", "0.01 CR", "--task-timeout", "10s", "--memory", "16MB"];
    let ran = renter.run(&base);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert!(ran.stderr.contains("exit code 7"), "{ran:?}");
    let ran = renter.run(&[base.as_slice(), &["--passthrough"]].concat());
    assert_eq!(ran.code, Some(7), "{ran:?}");
}

#[test]
fn without_a_limit_on_the_price_a_script_must_say_yes() {
    let (_up, _provider, renter) = market();
    let module = endless(&renter);
    let ran = renter.run(&["run", "--wasm", &module]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("neither max_price nor budget") && ran.stderr.contains("-y"), "{ran:?}");
}

#[test]
fn ctrl_c_detaches_from_a_running_node_and_cancel_ends_the_job() {
    let (_up, _provider, renter) = market();
    let _renter_up = Up::start(&renter);
    offers_are_known(&renter);
    let module = endless(&renter);
    let mut child = renter
        .command(&["run", "--wasm", &module, "--budget", "0.04 CR", "--task-timeout", "1m", "--memory", "16MB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("detached: ")).collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(told[0].contains("goes on (running, 0/1 done)") && told[0].contains("CR/h; souk cancel "), "{said}");
    let id = renter.run(&["ps", "-q"]).stdout.trim_end().to_owned();
    assert_eq!(renter.run(&["job", "wait", &id, "--timeout", "200ms"]).code, Some(7));
    assert_eq!(renter.run(&["cancel", &id]).code, Some(0));
    assert_eq!(renter.run(&["job", "wait", &id]).code, Some(103));
}

#[test]
fn ctrl_c_cancels_the_job_of_a_node_inside_the_command() {
    let (_up, _provider, renter) = market();
    let module = endless(&renter);
    let mut child = renter
        .command(&["run", "--wasm", &module, "--budget", "0.04 CR", "--task-timeout", "1m", "--memory", "16MB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("cancelling job ") && said.contains("is cancelled"), "{said}");
}

#[test]
fn a_detached_run_prints_the_id_alone() {
    let (_up, _provider, renter) = market();
    let _renter_up = Up::start(&renter);
    offers_are_known(&renter);
    let hello = format!("{EXAMPLES}/hello/job.toml");
    let ran = run(renter.command(&["run", "-d", "-f", &hello]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let id = ran.stdout.trim_end();
    assert_eq!(id.len(), 52, "{ran:?}");
    assert_eq!(renter.run(&["job", "wait", id]).code, Some(0));
    let written = renter.run(&["job", "outputs", id, "--into", renter.path("o").to_str().unwrap(), "--json"]).json();
    assert_eq!(written["files"], 1);
    assert!(renter.path("o/0/hello.txt").exists());
}
