//! Modules that are broken, hostile or endless, and the nodes that survive them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    lab::{Lab, alive, attempts, eventually, path, text, ticks},
    module,
};

/// Flags that every job here has.
const LIMITS: [&str; 6] = ["--budget", "0.01 CR", "--memory", "16MB", "--timeout", "90s"];
/// Longest time from a limit, or a cancel, to the end of the job. The processes themselves die within one second.
const PROMPT: Duration = Duration::from_secs(10);

#[test]
fn a_module_that_cannot_run_fails_its_job_with_the_reason_and_harms_no_node() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let write = |name: &str, text: &str| home.write(name, wat::parse_str(text).unwrap());
    let before = lab.providers[0].pid();
    for (wasm, named) in [
        (write("no-start.wasm", r#"(module (memory (export "memory") 1) (func (export "not_start")))"#), "_start"),
        (
            write("signature.wasm", r#"(module (memory (export "memory") 1) (func (export "_start") (param i32)))"#),
            "_start",
        ),
        (write("import.wasm", r#"(module (import "env" "steal" (func)) (func (export "_start")))"#), "steal"),
        (write("trap.wasm", r#"(module (func (export "_start") unreachable))"#), "unreachable"),
        (home.write("text.wasm", "this is no module"), ""),
        (home.write("short.wasm", [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1]), ""),
    ] {
        let name = path(&wasm);
        let ran =
            home.run(&[&["run", "--json", "--wasm", name], LIMITS.as_slice(), &["--task-timeout", "10s"]].concat());
        assert!(matches!(ran.code, Some(100 | 2)), "{name}: {ran:?}");
        assert!(format!("{ran:?}").contains(named), "{name}: {ran:?}");
        if ran.code == Some(100) {
            let job = lab.renter.job(text(&ran.json()["id"]));
            assert_eq!((&job["state"], attempts(&job).values().sum::<usize>()), (&"failed".into(), 1), "{name}: {job}");
            assert!(text(&job["reason"]).contains(named), "{name}: {job}");
        }
    }
    assert_eq!(lab.providers[0].json(&["status"])["pid"], before);
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello/job.toml");
    let ran = home.run(&["run", "-f", hello, "--to", path(&home.path("results")), "--timeout", "90s"]);
    assert_eq!(ran.code, Some(0), "the provider still works: {ran:?}");
}

#[test]
fn a_component_runs_as_a_module_does_and_has_no_entry_to_choose() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let body = r#"(data (i32.const 32) "hello\n") (func (export "_start") (call $write (i32.const 32) (i32.const 6)))"#;
    let wasm = module::component(home, "hello.wasm", body);
    let ran = home.run(&[&["run", "--json", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let job = lab.renter.job(text(&ran.json()["id"]));
    assert_eq!(home.run(&["logs", text(&job["id"])]).stdout, "hello\n");
    let receipts = lab.receipts(text(&job["id"]));
    assert_eq!(receipts.len(), 1, "{receipts:?}");
    assert_eq!(receipts[0]["total"], job["cost"], "{receipts:?}");

    let file = home.write(
        "job.toml",
        "version = 1\nname = \"entry\"\n[runtime]\nwasm = \"./hello.wasm\"\nentry = \"work\"\n[resources]\nmemory = \"16MB\"\n[market]\nbudget = \"0.01 CR\"\n",
    );
    let ran = home.run(&["run", "--json", "-f", path(&file)]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let reason = lab.renter.job(text(&ran.json()["id"]))["reason"].to_string();
    assert!(reason.contains("runtime.entry is") && reason.contains("leave runtime.entry out"), "{reason}");
}

#[test]
fn more_memory_than_a_module_can_have_is_refused_before_anything_is_sent() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    module::endless(home);
    let text = "version = 1\nname = \"huge\"\n[runtime]\nwasm = \"./endless.wasm\"\n[resources]\nmemory = \"800GB..\"\n[market]\nbudget = \"1 CR\"\n";
    let file = home.write("job.toml", text);
    for verb in [["job", "validate", "-f"].as_slice(), &["run", "-f"]] {
        let said = home.run(&[verb, &[path(&file)]].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("4 GiB") || said.stdout.contains("4 GiB"), "{said:?}");
    }
    assert_eq!(lab.renter.json(&["ps", "-a"]), serde_json::json!([]));
}

#[test]
fn growing_past_the_limit_gets_minus_one_and_nothing_worse() {
    let lab = Lab::new(1);
    // Exits with 7 if a growth to 64 MiB is refused while one page still fits.
    let body = r#"(func (export "_start")
        (if (i32.ne (memory.grow (i32.const 1)) (i32.const 4)) (then (call $exit (i32.const 8))))
        (if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then (call $exit (i32.const 7)))))"#;
    let wasm = module::module(&lab.renter.home, "grow.wasm", body);
    let ran = lab.renter.home.run(&[&["run", "--passthrough", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
    assert_eq!(ran.code, Some(7), "{ran:?}");
}

#[test]
fn a_limit_of_one_second_ends_an_endless_loop_and_keeps_what_it_said() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let wasm = module::endless(home);
    let started = Instant::now();
    let ran =
        home.run(&[&["run", "--json", "--task-timeout", "1s", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let job = lab.renter.job(text(&ran.json()["id"]));
    assert_eq!(job["state"], "failed", "{job}");
    let attempt = &job["tasks"][0]["attempts"][0];
    assert_eq!(attempt["state"], "timed-out", "{job}");
    let ms: u64 = text(&attempt["run_ms"]).parse().unwrap();
    assert!((1_000..3_000).contains(&ms), "{job}");
    assert_eq!(home.run(&["logs", text(&job["id"])]).stdout, "begin\n");
}

#[test]
fn cancel_ends_an_endless_loop_and_leaves_no_process() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let start = r#"(module (memory (export "memory") 1) (func $loop (loop $again (br $again))) (start $loop) (func (export "_start")))"#;
    for wasm in [module::endless(home), home.write("start.wasm", wat::parse_str(start).unwrap())] {
        let id = lab.renter.submit(&[&["--task-timeout", "5m", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
        let busy = || lab.providers[0].children().into_iter().find(|pid| ticks(*pid) >= 30);
        eventually("a runner computes", || busy().is_some());
        let runner = busy().unwrap();
        let started = Instant::now();
        assert_eq!(home.run(&["cancel", &id]).code, Some(0));
        lab.renter.job_until(&id, |job| job["state"] == "cancelled");
        eventually("the runner dies", || !alive(runner));
        assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
        lab.providers[0].until(&["status", "--json"], |run| run.code == Some(0) && run.json()["leases_provided"] == 0);
        let why = home.run(&["job", "wait", &id]);
        assert_eq!(why.code, Some(103), "{why:?}");
        assert_eq!(home.run(&["cancel", &id]).code, Some(0), "twice is no error");
    }
}

#[test]
fn a_job_that_nobody_may_take_waits_detaches_and_is_cancelled_without_a_receipt() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let wasm = module::endless(home);
    let mut child = home
        .command(&["run", "--wasm", path(&wasm), "--max-price", "0.000001 CR/h", "--memory", "16MB"])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(home.path("run.log")).unwrap())
        .spawn()
        .unwrap();
    let ps = lab.renter.until(&["ps", "-q"], |run| run.code == Some(0) && !run.stdout.is_empty());
    let id = ps.stdout.trim_end();
    // The command has said which job it follows before it can detach from it.
    eventually("the command follows", || home.read("run.log").contains(&id[..8]));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    let _ = BufReader::new(child.stdout.take().unwrap()).read_line(&mut rest);
    assert_eq!((child.wait().unwrap().code(), rest.as_str()), (Some(130), ""), "{}", home.read("run.log"));
    let said = home.read("run.log");
    assert_eq!(said.lines().filter(|line| line.starts_with("detached: ")).count(), 1, "{said}");
    assert_eq!(home.run(&["cancel", id]).code, Some(0));
    assert_eq!(home.run(&["job", "wait", id]).code, Some(103));
    assert_eq!(lab.renter.json(&["job", "receipts", id]), serde_json::json!([]));
    assert_eq!(lab.renter.json(&["wallet", "balance"])["owed_by_us"], "0.000000 CR");

    for args in [
        ["job", "get"].as_slice(),
        &["job", "why"],
        &["logs"],
        &["cancel"],
        &["job", "cost"],
        &["job", "outputs"],
        &["job", "receipts"],
        &["job", "wait"],
    ] {
        let said = home.run(&[args, &["zzzzzzzz", "--json"]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""), "{args:?} {said:?}");
        said.error();
    }
}
