//! A market of real nodes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::home::{Home, Run, free_port};

/// Longest wait for anything; a loaded machine needs some of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// End states of jobs.
pub(super) const ENDS: [&str; 4] = ["succeeded", "failed", "cancelled", "expired"];
/// What a node logs messages under, a line each.
const MESSAGES: &str = "souk_node::messages";
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A node: its home, and its process while one runs.
pub(super) struct Node {
    pub(super) home: Home,
    child: Option<Child>,
}

/// Renters and providers that know each other.
pub(super) struct Lab {
    pub(super) renter: Node,
    /// More nodes that submit jobs, if there are any.
    pub(super) others: Vec<Node>,
    pub(super) providers: Vec<Node>,
}

impl Node {
    /// A home with a role on free ports of loopback; all cores are for sale.
    fn new(role: &str) -> Self {
        // A renter that offers something does its own work itself.
        let offer = "[offer]\nreserve = { cpu = \"0\", memory = \"1GB\", disk = \"1GB\" }\n";
        Self::with(role, if role == "renter" { "" } else { offer })
    }

    /// The same with these sections of its file.
    pub(super) fn with(role: &str, sections: &str) -> Self {
        let (home, port, api) = (Home::new(), free_port(), free_port());
        let text = format!(
            "version = 1\n[node]\nname = \"{role}\"\nrole = \"{role}\"\nprofile = \"lan\"\n[network]\n\
             listen = [\"/ip4/127.0.0.1/udp/{port}/quic-v1\", \"/ip4/127.0.0.1/tcp/{port}\"]\n\
             {sections}[api]\nlisten = \"127.0.0.1:{api}\"\n"
        );
        home.write("config/souk.toml", text);
        assert_eq!(home.run(&["init"]).code, Some(0));
        Self { home, child: None }
    }

    /// Starts the node and waits until it answers.
    pub(super) fn up(&mut self) {
        let log = File::options().create(true).append(true).open(self.home.path("node.log")).unwrap();
        let mut command = self.home.command(&["up"]);
        command.env("SOUK_LOG", format!("souk_node=info,{MESSAGES}=trace"));
        command.stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let pid = self.pid();
        self.until(&["status", "--json"], |run| run.code == Some(0) && run.json()["pid"] == pid);
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(super) fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// Kills the node as `kill -9` does: nothing is cleaned up.
    pub(super) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the node as a service manager does, and waits for its end.
    pub(super) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        let sent = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    /// Runs a command of this home, again and again until it says what is waited for.
    pub(super) fn until(&self, args: &[&str], holds: impl Fn(&Run) -> bool) -> Run {
        let started = Instant::now();
        loop {
            let run = self.home.run(args);
            if holds(&run) {
                return run;
            }
            assert!(started.elapsed() < PATIENCE, "{args:?}: {run:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// The JSON value that a command prints; it must succeed.
    pub(super) fn json(&self, args: &[&str]) -> Value {
        let run = self.home.run(&[args, &["--json"]].concat());
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        run.json()
    }

    /// A job as `job get` shows it.
    pub(super) fn job(&self, id: &str) -> Value {
        self.json(&["job", "get", id])
    }

    /// Waits until a job looks like this.
    pub(super) fn job_until(&self, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until(&["job", "get", id, "--json"], |run| run.code == Some(0) && holds(&run.json())).json()
    }

    /// Submits a job that goes on by itself, and returns its id.
    pub(super) fn submit(&self, args: &[&str]) -> String {
        let run = self.home.run(&[&["run", "-d"], args].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        run.stdout.trim_end().to_owned()
    }

    /// Exports a finished job's receipts, one of each of its leases, verifies them, and returns their summaries.
    pub(super) fn receipts(&self, id: &str) -> Vec<Value> {
        let folder = self.home.path("exported");
        let args = ["job", "receipts", id, "--export", path(&folder), "--json"];
        let whole = |value: &Value| {
            value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["complete"] == true))
        };
        let receipts = self.until(&args, |run| run.code == Some(0) && whole(&run.json())).json();
        for receipt in receipts.as_array().unwrap() {
            let file = folder.join(format!("{}.receipt", text(&receipt["lease"])));
            let verdict = self.json(&["attest", "verify", path(&file)]);
            assert_eq!(verdict["ok"], true, "{verdict}");
        }
        receipts.as_array().unwrap().clone()
    }

    /// Messages of the market that have reached this node.
    pub(super) fn heard(&self) -> usize {
        self.home.read("node.log").lines().filter(|line| line.contains(MESSAGES)).count()
    }

    /// Processes that this node has started.
    pub(super) fn children(&self) -> Vec<u32> {
        children(self.pid())
    }
}

impl Drop for Node {
    #[allow(clippy::print_stderr, reason = "the log of a failed test is for whoever reads its output")]
    fn drop(&mut self) {
        if self.is_up() {
            self.kill();
        }
        if std::thread::panicking()
            && let Ok(log) = fs::read_to_string(self.home.path("node.log"))
        {
            eprintln!("--- log of {:?}\n{log}", self.home.path(""));
        }
    }
}

impl Lab {
    /// A market whose renter knows all its providers' offers.
    pub(super) fn new(providers: usize) -> Self {
        Self::with(providers, &[])
    }

    /// The same, with fields of the network file replaced.
    pub(super) fn with(providers: usize, params: &[(&str, &str)]) -> Self {
        Self::with_renter(providers, "renter", params)
    }

    /// The same with another role of the node that submits jobs.
    pub(super) fn with_renter(providers: usize, role: &str, params: &[(&str, &str)]) -> Self {
        Self::of((0..providers).map(|_| Node::new("provider")).collect(), vec![Node::new(role)], params)
    }

    /// A market of these nodes, which are not up yet; at least one provider and one renter.
    pub(super) fn of(mut providers: Vec<Node>, mut renters: Vec<Node>, params: &[(&str, &str)]) -> Self {
        assert_eq!(providers[0].home.run(&["network", "new", "--name", "lab", "--open"]).code, Some(0));
        let mut text = providers[0].home.read("config/network.toml");
        for (from, to) in params {
            assert!(text.contains(from), "{text}");
            text = text.replace(from, to);
        }
        let file = providers[0].home.write("config/network.toml", text);
        let join = |node: &Node| assert_eq!(node.home.run(&["network", "join", path(&file)]).code, Some(0));
        providers.iter().skip(1).chain(&renters).for_each(join);
        providers.iter_mut().chain(&mut renters).for_each(Node::up);
        let count = providers.len();
        for renter in &renters {
            renter.until(&["offers", "--json"], |run| run.code == Some(0) && run.json()["matched"] == count);
        }
        let others = renters.split_off(1);
        Self { renter: renters.remove(0), others, providers }
    }

    /// All nodes that submit jobs.
    pub(super) fn renters(&self) -> impl Iterator<Item = &Node> {
        [&self.renter].into_iter().chain(&self.others)
    }

    /// The provider of this id.
    pub(super) fn provider_mut(&mut self, id: &str) -> &mut Node {
        self.providers.iter_mut().find(|node| node.is_up() && node.json(&["status"])["node"] == id).unwrap()
    }

    /// The receipts of a finished job of the first renter.
    pub(super) fn receipts(&self, id: &str) -> Vec<Value> {
        self.renter.receipts(id)
    }

    /// Asserts that the books of all sides are sound and say the same: the renters owe `cost`, the providers are owed it.
    pub(super) fn books_agree(&self, cost: &Value) {
        self.books_say(micro(cost));
    }

    /// The same of millionths of a credit.
    pub(super) fn books_say(&self, cost: u64) {
        let sum = |nodes: &mut dyn Iterator<Item = &Node>, side: &str| -> u64 {
            nodes.map(|node| micro(&node.json(&["wallet", "balance"])[side])).sum()
        };
        assert!(self.renters().all(|node| node.json(&["wallet", "verify"])["ok"] == true));
        assert_eq!(sum(&mut self.renters(), "owed_by_us"), cost);
        let providers = || self.providers.iter().filter(|node| node.is_up());
        eventually("the providers' books say the same", || sum(&mut providers(), "owed_to_us") == cost);
        assert!(providers().all(|node| node.json(&["wallet", "verify"])["ok"] == true));
    }
}

pub(super) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Money in millionths of a credit.
pub(super) fn micro(value: &Value) -> u64 {
    let (whole, part) = text(value).strip_suffix(" CR").unwrap().split_once('.').unwrap();
    assert_eq!(part.len(), 6, "{value}");
    whole.parse::<u64>().unwrap() * 1_000_000 + part.parse::<u64>().unwrap()
}

/// Waits for a condition.
pub(super) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Fields of a process's `stat` after its name: state, parent, and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent.to_string())).collect()
}

/// Whether a process still runs; a zombie does not.
pub(super) fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat[0] != "Z" && stat[0] != "X")
}

/// Clock ticks a process has computed for.
pub(super) fn ticks(pid: u32) -> u64 {
    stat(pid).map_or(0, |stat| stat[11].parse::<u64>().unwrap() + stat[12].parse::<u64>().unwrap())
}

/// Attempts of all tasks, by their state.
pub(super) fn attempts(job: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for task in job["tasks"].as_array().unwrap() {
        for attempt in task["attempts"].as_array().unwrap() {
            *counts.entry(text(&attempt["state"]).to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Tasks in a state.
pub(super) fn tasks(job: &Value, state: &str) -> usize {
    job["tasks"].as_array().unwrap().iter().filter(|task| task["state"] == state).count()
}

/// Paid attempts of all tasks.
pub(super) fn billed(job: &Value) -> usize {
    let of = |task: &Value| task["attempts"].as_array().unwrap().iter().filter(|one| one["billed"] == true).count();
    job["tasks"].as_array().unwrap().iter().map(of).sum()
}
