//! The market as processes on loopback.

use std::{collections::BTreeMap, thread::available_parallelism};

use serde_json::Value;
use souk_protocol::{NetworkFile, Params, Rate, Timestamp};

use super::{
    super::{
        lab::{ENDS, Lab, Node, attempts, micro, path, tasks, text},
        module,
    },
    came::{Came, Job, Lease},
    market::{Market, RENTERS, SOLD, Wish},
};

/// The rules of the network, and what its users did and when.
pub(super) struct Did {
    pub(super) params: Params,
    pub(super) jobs: Vec<Moments>,
}

/// When a job was submitted and when it was over.
pub(super) struct Moments {
    pub(super) submitted: Timestamp,
    pub(super) ended: Timestamp,
}

/// Runs it, a round after the other.
pub(super) fn run(market: &Market) -> (Came, Did) {
    let kept = available_parallelism().unwrap().get() * 1_000 - usize::try_from(SOLD.0).unwrap();
    let provider = |machine: &souk_sim::Machine| {
        let [floor, ask] = [machine.floor, machine.ask]
            .map(|list| format!("{{ cpu = \"{}\", memory_gb = \"{}\" }}", list.cpu, list.memory_gb));
        let reserve = format!("reserve = {{ cpu = \"{kept}m\", memory = \"1GB\", disk = \"1GB\" }}");
        Node::with("provider", &format!("[offer]\n{reserve}\n[pricing]\nfloor = {floor}\nask = {ask}\n"))
    };
    let renters = (0..RENTERS).map(|_| Node::with("renter", "")).collect();
    let lab = Lab::of(market.machines.iter().map(provider).collect(), renters, &[]);
    let params = NetworkFile::parse(&lab.renter.home.read("config/network.toml")).unwrap().params;
    let numbers: BTreeMap<String, usize> =
        lab.providers.iter().map(|node| text(&node.json(&["status"])["node"]).to_owned()).zip(0..).collect();

    let (mut jobs, mut moments) = (Vec::new(), Vec::new());
    for round in &market.rounds {
        until_free(&lab);
        for (wish, job) in round.iter().zip(play(&lab, round)) {
            moments.push(Moments { submitted: time(&job["submitted"]), ended: time(&job["ended"]) });
            jobs.push(came(renter(&lab, wish), &job, &numbers));
        }
    }
    lab.books_say(jobs.iter().map(|job| job.cost).sum());
    let earned = |node: &Node| micro(&node.json(&["wallet", "balance"])["owed_to_us"]);
    let came = Came {
        jobs,
        earned: lab.providers.iter().map(earned).collect(),
        heard: lab.renters().chain(&lab.providers).map(|node| node.heard() as u64).collect(),
    };
    (came, Did { params, jobs: moments })
}

fn renter<'a>(lab: &'a Lab, wish: &Wish) -> &'a Node {
    lab.renters().nth(wish.job.renter).unwrap()
}

/// Waits until every renter knows that every machine is free.
fn until_free(lab: &Lab) {
    let free = |offers: &Value| {
        let offers = offers["offers"].as_array().unwrap();
        offers.len() == lab.providers.len() && offers.iter().all(|offer| offer["slots"] == SOLD.0 / 1_000)
    };
    for renter in lab.renters() {
        renter.until(&["offers", "--max", "200", "--json"], |run| run.code == Some(0) && free(&run.json()));
    }
}

/// Submits the jobs of a round, each once the one before runs, and waits for their ends. Answers them as they are then.
fn play(lab: &Lab, round: &[Wish]) -> Vec<Value> {
    let is_over = |job: &Value| ENDS.contains(&text(&job["state"]));
    let mut ids: Vec<String> = Vec::new();
    for wish in round {
        if let Some((before, id)) = round.iter().zip(&ids).next_back() {
            let all = before.job.runs.len();
            let runs = |job: &Value| attempts(job).get("running") == Some(&all);
            renter(lab, before).job_until(id, |job| runs(job) || is_over(job));
        }
        let node = renter(lab, wish);
        let file = file(node, wish);
        ids.push(node.submit(&["-f", &file, "-y"]));
    }
    let wishes = || round.iter().zip(&ids);
    for (wish, id) in wishes().filter(|(wish, _)| !wish.is_cancelled) {
        renter(lab, wish).job_until(id, is_over);
    }
    for (wish, id) in wishes().filter(|(wish, _)| wish.is_cancelled) {
        assert_eq!(renter(lab, wish).home.run(&["cancel", id]).code, Some(0));
    }
    wishes().map(|(wish, id)| renter(lab, wish).job_until(id, is_over)).collect()
}

/// Writes the job file of a wish, and its guest.
fn file(node: &Node, Wish { name, job, .. }: &Wish) -> String {
    let wasm = format!("{name}.wasm");
    module::sleeps(&node.home, &wasm, job.runs[0].to_millis().0);
    let most = job.max_rate.map(|rate| format!("max_price = \"{rate}\"\n")).unwrap_or_default();
    let within = job.start_within.map(|within| format!("start_within = \"{within}\"\n")).unwrap_or_default();
    let text = format!(
        "version = 1\nname = \"{name}\"\n[runtime]\nwasm = \"./{wasm}\"\n[resources]\ncpu = \"{}..\"\nmemory = \"{}..\"\n\
         disk = \"{}..\"\n[market]\ntier = \"{}\"\nmode = \"{}\"\n{most}[sla]\n{within}verify = \"none\"\n[limits]\n\
         timeout = \"{}\"\n[retry]\nattempts = {}\n[array]\ncount = {}\nmax_parallel = {}\n",
        job.need.cpu,
        job.need.memory,
        job.need.disk,
        job.tier,
        job.mode,
        job.limit,
        job.attempts,
        job.runs.len(),
        job.parallel
    );
    path(&node.home.write(&format!("{name}.toml"), text)).to_owned()
}

/// What came of a job, by its renter and by its receipts.
fn came(node: &Node, job: &Value, numbers: &BTreeMap<String, usize>) -> Job {
    let leases = job["leases"].as_array().unwrap();
    let receipts = if leases.is_empty() { Vec::new() } else { node.receipts(text(&job["id"])) };
    assert_eq!(receipts.len(), leases.len(), "{job}");
    // The cost is whole once the last attempt is settled, which may be after the end.
    let job = node.job(text(&job["id"]));
    let all = || job["tasks"].as_array().unwrap().iter().map(|task| task["attempts"].as_array().unwrap());
    let paid = |attempts: &Vec<Value>| attempts.iter().filter(|one| one["billed"] == true).count();
    assert!(all().all(|attempts| paid(attempts) <= 1), "paid once: {job}");
    let first = all().flatten().filter(|one| !one["started"].is_null()).map(|one| time(&one["started"])).min();
    let submitted = time(&job["submitted"]);
    let lease = |receipt: &Value| Lease {
        provider: numbers[text(&receipt["provider"])],
        rate: text(&receipt["rate"]).parse::<Rate>().unwrap(),
        billed: receipt["billed"].as_u64().unwrap(),
        run_ms: text(&receipt["run_ms"]).parse().unwrap(),
        paid: micro(&receipt["total"]),
        receipt: receipt["complete"] == true,
    };
    Job {
        end: text(&job["state"]).to_owned(),
        done: tasks(&job, "done") as u64,
        attempts: attempts(&job).values().sum::<usize>() as u64,
        leases: receipts.iter().map(lease).collect(),
        cost: micro(&job["cost"]),
        wait_ms: first.map(|first| first.saturating_since(submitted).0),
        whole_ms: time(&job["ended"]).saturating_since(submitted).0,
    }
}

fn time(value: &Value) -> Timestamp {
    text(value).parse().unwrap()
}
