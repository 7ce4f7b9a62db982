//! The processes themselves: what confines them, and that none outlives its reason.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use souk_sandbox::{CompileError, End, Limits, Pool, PoolConfig, SandboxError, self_test};

use crate::{
    bench::{Bench, config, gone, run_on, runner, short},
    guests::{bare, hello},
};

#[tokio::test]
async fn the_self_test_tells_what_confines_a_runner() {
    let bench = Bench::new();
    let confinement = self_test(&runner(), &[], bench.root()).await.unwrap();
    assert!(confinement.landlock_abi >= 1);
    assert!(confinement.seccomp && confinement.rlimits && confinement.capabilities_dropped);
    assert!(confinement.dies_with_node);
    assert_eq!(confinement.user_namespace, confinement.user_namespace_reason.is_none());
    assert_eq!(&bench.pool.warm().await.unwrap(), &confinement);
    // It cleans up after itself.
    let left: Vec<_> = std::fs::read_dir(bench.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("self-test")), "{left:?}");
}

fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{field}:"))).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[tokio::test]
async fn a_runner_has_no_rights_no_environment_and_no_foreign_files() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    run_on(&mut runner, &bench.task(), &short()).await;
    let pid = runner.pid();
    assert_eq!(status(pid, "Seccomp"), "2");
    assert_eq!(status(pid, "Seccomp_filters"), "3");
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "Threads"), "1");
    let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "900");
    // Its /proc entry is root's: only root can look further.
    if let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) {
        assert_eq!(environment, b"");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(limit("Max core file size").contains(" 0 "));
        assert!(limit("Max address space").contains(&(6u64 << 30).to_string()));
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        for file in files {
            let file = file.unwrap();
            let target = std::fs::read_link(file.path()).unwrap();
            let target = target.to_string_lossy();
            let ours = target.starts_with("pipe:") || target == "/dev/null" || target.starts_with("/memfd:");
            assert!(ours, "{} is {target}", file.path().display());
        }
    }
    if bench.pool.confinement().await.unwrap().user_namespace {
        for namespace in ["user", "mnt", "net", "ipc", "uts"] {
            let of = |who: String| std::fs::read_link(format!("/proc/{who}/ns/{namespace}"));
            if let (Ok(mine), Ok(its)) = (of("self".into()), of(pid.to_string())) {
                assert_ne!(mine, its, "{namespace}");
            }
        }
    }
    runner.close().await;
    bench.nothing_left().await;
}

#[tokio::test]
async fn a_dropped_runner_is_killed_and_reaped() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    let runner = bench.take(&module, &short()).await;
    let pid = runner.pid();
    drop(runner);
    assert!(gone(pid).await);
}

#[tokio::test]
async fn a_run_whose_caller_goes_away_leaves_a_runner_that_takes_no_task() {
    let bench = Bench::new();
    let wasm = bare("(func (export \"_start\") (loop (br 0)))");
    let module = bench.compile(&wasm).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    let (sink, _output) = tokio::sync::mpsc::channel::<souk_sandbox::Output>(1);
    let task = bench.task();
    let limits = short();
    let run = runner.run(&task, &limits, sink);
    assert!(tokio::time::timeout(Duration::from_millis(50), run).await.is_err());
    assert!(!runner.is_idle());
    let again = run_on(&mut runner, &bench.task(), &limits).await;
    assert!(matches!(again.ended.end, End::RunnerFault { .. }));
    drop(runner);
    bench.is_well().await;
}

#[tokio::test]
async fn a_runner_that_somebody_else_kills_is_a_fault_of_ours() {
    let bench = Bench::new();
    let wasm = crate::guests::guest(
        "(func (export \"_start\") (call $write (i32.const 1) (i32.const 64) (i32.const 1)) (loop (br 0)))",
    );
    let module = bench.compile(&wasm).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    let pid = runner.pid();
    let task = bench.task();
    let limits = short();
    let (sink, mut output) = tokio::sync::mpsc::channel::<souk_sandbox::Output>(1);
    let kill = async {
        output.recv().await.unwrap();
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
    };
    let (ended, ()) = tokio::join!(runner.run(&task, &limits, sink), kill);
    assert!(matches!(&ended.end, End::RunnerFault { reason } if reason.contains("killed from outside")), "{ended:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn runners_are_started_ahead_and_replaced() {
    let bench = Bench::with(2);
    bench.pool.warm().await.unwrap();
    assert_eq!(bench.pool.ready(), 2);
    let module = bench.compile(&hello()).await.unwrap();
    let runners = [bench.take(&module, &short()).await, bench.take(&module, &short()).await];
    let filled = async {
        while bench.pool.ready() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), filled).await.unwrap();
    drop(runners);
    bench.is_well().await;
}

#[tokio::test]
async fn a_pool_that_is_gone_leaves_no_idle_runner() {
    let before = children();
    let bench = Bench::with(2);
    bench.pool.warm().await.unwrap();
    let idle: Vec<u32> = children().into_iter().filter(|pid| !before.contains(pid)).collect();
    assert!(idle.len() >= 2);
    drop(bench);
    // Those of other tests in this process come and go as well.
    for pid in idle {
        assert!(gone(pid).await || !before.contains(&pid));
    }
}

/// The pids of this process's children.
fn children() -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok) {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

fn pool(bench: &Bench, program: &str, args: &[&str]) -> Pool {
    Pool::new(PoolConfig {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..config(bench.root(), "scratch", 0)
    })
}

#[tokio::test]
async fn a_program_that_is_no_runner_is_told_by_name() {
    let bench = Bench::new();
    let missing = pool(&bench, "/no/such/program", &[]).warm().await.unwrap_err();
    assert!(missing.to_string().starts_with("cannot start /no/such/program: "), "{missing}");
    let other = pool(&bench, "/bin/true", &[]).warm().await.unwrap_err();
    assert!(matches!(&other, SandboxError::Child { .. }), "{other}");
    let nonsense = pool(&bench, "/bin/echo", &["hello"]).warm().await.unwrap_err();
    assert!(nonsense.to_string().contains("frame"), "{nonsense}");
}

#[tokio::test]
async fn a_runner_without_a_folder_of_its_own_is_none() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    // The one that is ready already has its folder.
    let ready = bench.pool.take(&module, &short()).await.unwrap();
    // A file where the runners' folders should be, as on a disk that went wrong.
    let scratch = bench.root().join("scratch");
    let aside = bench.root().join("aside");
    std::fs::rename(&scratch, &aside).unwrap();
    std::fs::write(&scratch, b"").unwrap();
    let error = bench.pool.take(&module, &short()).await.unwrap_err();
    assert!(
        matches!(&error, CompileError::Sandbox(SandboxError::Folder { path, .. }) if path.starts_with(&scratch)),
        "{error}"
    );
    std::fs::remove_file(&scratch).unwrap();
    std::fs::rename(&aside, &scratch).unwrap();
    ready.close().await;
    bench.is_well().await;
}

#[tokio::test]
async fn a_runner_s_folder_goes_with_it() {
    let bench = Bench::with(1);
    let module = bench.compile(&hello()).await.unwrap();
    let runner = bench.pool.take(&module, &short()).await.unwrap();
    let folder = runner.folders().root().to_owned();
    assert!(folder.join("out").is_dir());
    runner.close().await;
    let vanish = async {
        while folder.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), vanish).await.unwrap();
}

#[tokio::test]
async fn everything_holds_without_namespaces() {
    let bench = Bench::new();
    let pool = Pool::without_namespaces(config(bench.root(), "scratch", 0));
    let confinement = pool.warm().await.unwrap();
    assert!(!confinement.user_namespace);
    assert!(confinement.seccomp && confinement.landlock_abi >= 1);
    let module = bench.compile(&hello()).await.unwrap();
    let mut runner = pool.take(&module, &short()).await.unwrap();
    let task = bench.task();
    runner.folders().prepare(&task).unwrap();
    let seen = run_on(&mut runner, &task, &short()).await;
    assert_eq!(seen.stdout, b"hello\n");
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    assert_eq!(status(runner.pid(), "CapEff"), "0000000000000000");
}

/// One of this file's ignored tests in a process of its own.
fn own_process(program: &std::path::Path, name: &str) -> Vec<String> {
    let test = format!("processes::{name}");
    [program.to_str().unwrap(), "--ignored", "--exact", "--nocapture", &test].map(str::to_owned).to_vec()
}

#[tokio::test]
#[ignore = "run by the next test as an ordinary user"]
async fn a_node_of_an_ordinary_user() {
    let bench = Bench::new();
    let confinement = bench.pool.warm().await.unwrap();
    let module = bench.compile(&hello()).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    assert!(status(runner.pid(), "Uid").starts_with("65534"));
    let seen = run_on(&mut runner, &bench.task(), &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    assert_eq!(seen.stdout, b"hello\n");
    runner.close().await;
    bench.is_well().await;
    println!("\nCONFINED {confinement:?}");
}

#[tokio::test]
async fn everything_holds_as_an_ordinary_user() {
    if status(std::process::id(), "Uid").split_whitespace().nth(1) != Some("0") {
        println!("this test process is an ordinary user's: the other tests have shown it");
        return;
    }
    // Copies, for nobody may not get to where this was built.
    let place = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    open(place.path());
    for (from, name) in [(std::env::current_exe().unwrap(), "tests"), (runner(), "runner")] {
        std::fs::copy(from, place.path().join(name)).unwrap();
        open(&place.path().join(name));
    }
    let mut args: Vec<String> = ["--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned).to_vec();
    args.extend(own_process(&place.path().join("tests"), "a_node_of_an_ordinary_user"));
    let done = Command::new("setpriv")
        .args(args)
        .env("TMPDIR", place.path())
        .env("SOUK_TEST_RUNNER", place.path().join("runner"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("\nCONFINED "), "{said}{}", String::from_utf8_lossy(&done.stderr));
}

/// The node of the next test: takes a runner, starts a loop in it, says the pid and waits to be killed.
#[tokio::test]
#[ignore = "run by the next test as a process of its own"]
async fn a_node_that_will_be_killed() {
    let bench = Bench::new();
    let wasm = bare("(func (export \"_start\") (loop (br 0)))");
    let module = bench.compile(&wasm).await.unwrap();
    let limits = Limits { wall_ms: 60_000, ..short() };
    let mut runner = bench.take(&module, &limits).await;
    println!("\nRUNNER {}", runner.pid());
    let task = bench.task();
    run_on(&mut runner, &task, &limits).await;
}

#[tokio::test]
async fn a_runner_dies_with_its_node() {
    use std::io::BufRead;
    let line = own_process(&std::env::current_exe().unwrap(), "a_node_that_will_be_killed");
    let mut node =
        Command::new(&line[0]).args(&line[1..]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = std::io::BufReader::new(node.stdout.take().unwrap()).lines();
    let pid: u32 =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("RUNNER ")?.trim().parse().ok()).unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    node.kill().unwrap();
    node.wait().unwrap();
    let began = Instant::now();
    // Its new parent reaps it; until then it may be a zombie, which is dead enough.
    let dead = async {
        while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), dead).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Prints what the hot path costs; the numbers are for a quiet machine.
#[tokio::test]
#[ignore = "a measurement"]
async fn what_it_costs() {
    let bench = Bench::with(2);
    let config = |ahead| config(bench.root(), "scratch", ahead);
    let module = bench.compile(&hello()).await.unwrap();
    for (name, pool) in [
        ("take from those ahead", Pool::new(config(2))),
        ("the same without namespaces", Pool::without_namespaces(config(2))),
        ("take with none ahead", Pool::new(config(0))),
    ] {
        pool.warm().await.unwrap();
        let ahead = pool.ready();
        let mut takes = Vec::new();
        for _ in 0..25 {
            let began = Instant::now();
            let runner = pool.take(&module, &short()).await.unwrap();
            takes.push(began.elapsed());
            runner.close().await;
            while pool.ready() < ahead.min(2) && name != "take with none ahead" {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        takes.sort();
        println!("{name}: p50 {:?}, p95 {:?}", takes[12], takes[23]);
    }
    let mut runner = bench.take(&module, &short()).await;
    let task = bench.task();
    let mut calls = Vec::new();
    for _ in 0..1_000 {
        let began = Instant::now();
        run_on(&mut runner, &task, &short()).await;
        calls.push(began.elapsed());
    }
    calls.sort();
    println!("warm call: p50 {:?}, p95 {:?}", calls[500], calls[950]);
}
