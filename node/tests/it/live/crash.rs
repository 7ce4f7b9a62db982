//! Nodes that die in the middle of a job: no work is lost, none is paid twice.

use serde_json::Value;

use super::{
    lab::{self, Lab, Node, alive, attempts, billed, eventually, micro, path, tasks, text},
    module,
};

/// Six tasks of a second each.
fn job(renter: &Node) -> String {
    module::busy(&renter.home, 1_000);
    let file = renter.home.write(
        "job.toml",
        "version = 1\nname = \"six\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{index}\"]\n[resources]\ncpu = \"1..\"\nmemory = \"16MB..\"\n\
         [market]\nmax_price = \"0.05 CR/h\"\nbudget = \"0.02 CR\"\n[limits]\ntimeout = \"30s\"\n[array]\ncount = 6\n",
    );
    renter.submit(&["-f", path(&file)])
}

/// What must hold of every job that came through.
fn came_through(lab: &Lab, id: &str) -> Value {
    let job = lab.renter.job_until(id, |job| lab::ENDS.contains(&text(&job["state"])));
    let why = lab.renter.json(&["job", "why", id]);
    assert_eq!(job["state"], "succeeded", "{job}\n{why}");
    assert_eq!((tasks(&job, "done"), billed(&job)), (6, 6), "{job}");
    for index in 0..6 {
        let logged = lab.renter.home.run(&["logs", &format!("{id}/{index}")]);
        assert_eq!(logged.stdout, format!("begin\n{index}\n"), "{logged:?}");
    }
    let paid: u64 = job["leases"].as_array().unwrap().iter().map(|lease| micro(&lease["total"])).sum();
    assert_eq!(paid, micro(&job["cost"]), "{job}");
    lab.renter.job(id)
}

/// Some tasks are done, some are not.
fn in_the_middle(job: &Value) -> bool {
    tasks(job, "done") >= 1 && attempts(job).get("running").is_some_and(|running| *running >= 1)
}

#[test]
fn a_renter_killed_in_mid_job_goes_on_where_its_journal_ends() {
    let mut lab = Lab::new(1);
    let id = job(&lab.renter);
    let before = lab.renter.job_until(&id, in_the_middle);
    let early = lab.renter.json(&["job", "receipts", &id]);
    assert_eq!((early.as_array().unwrap().len(), &early[0]["complete"]), (1, &false.into()), "{early}");
    assert_eq!((&early[0]["end"], &early[0]["closed"]), (&Value::Null, &Value::Null), "{early}");
    lab.renter.kill();
    lab.renter.up();
    let after = came_through(&lab, &id);
    assert_eq!(after["leases"].as_array().unwrap().len(), 1, "{after}");
    assert_eq!(attempts(&after).values().sum::<usize>(), 6, "nothing ran a second time: {after}");
    for (then, now) in before["tasks"].as_array().unwrap().iter().zip(after["tasks"].as_array().unwrap()) {
        if then["state"] == "done" {
            assert_eq!(then["attempts"], now["attempts"]);
        }
    }
    let receipts = lab.receipts(&id);
    assert_eq!(receipts.iter().map(|one| micro(&one["total"])).sum::<u64>(), micro(&after["cost"]));
    assert_eq!(receipts.iter().map(|one| one["billed"].as_u64().unwrap()).sum::<u64>(), 6);
    lab.books_agree(&after["cost"]);
}

#[test]
fn a_provider_killed_in_mid_job_leaves_no_runner_and_bills_no_lost_attempt() {
    let mut lab = Lab::new(1);
    let id = job(&lab.renter);
    lab.renter.job_until(&id, in_the_middle);
    let runners = lab.providers[0].children();
    assert!(!runners.is_empty());
    lab.providers[0].kill();
    eventually("no runner outlives its node", || !runners.iter().any(|pid| alive(*pid)));
    lab.providers[0].up();
    let after = came_through(&lab, &id);
    let lost = attempts(&after).get("lost").copied().unwrap_or_default();
    assert!(lost >= 1, "{after}");
    assert_eq!(attempts(&after).get("done"), Some(&6), "{after}");
    let receipts = lab.receipts(&id);
    assert_eq!(receipts.len(), after["leases"].as_array().unwrap().len(), "one a lease");
    assert_eq!(receipts.iter().map(|one| one["billed"].as_u64().unwrap()).sum::<u64>(), 6, "{receipts:?}");
    assert_eq!(receipts.iter().map(|one| micro(&one["total"])).sum::<u64>(), micro(&after["cost"]));
    lab.books_agree(&after["cost"]);
}

#[test]
fn a_job_outlives_a_provider_that_never_comes_back() {
    let mut lab = Lab::with(2, &[("unknown_after = \"15s\"", "unknown_after = \"6s\"")]);
    assert_eq!(lab.renter.json(&["network", "show"])["params"]["unknown_after"], "6s");
    let id = job(&lab.renter);
    let before = lab.renter.job_until(&id, in_the_middle);
    let attempt_of =
        |task: &Value| task["attempts"].as_array().unwrap().iter().find(|one| one["state"] == "running").cloned();
    let victim = before["tasks"].as_array().unwrap().iter().find_map(attempt_of).unwrap();
    lab.provider_mut(text(&victim["provider"])).kill();
    let after = came_through(&lab, &id);
    let last = after["leases"].as_array().unwrap().iter().filter(|lease| lease["provider"] != victim["provider"]);
    assert!(last.count() >= 1, "{after}");
    let other: u64 = lab
        .providers
        .iter()
        .filter(|node| node.is_up())
        .map(|node| micro(&node.json(&["wallet", "balance"])["owed_to_us"]))
        .sum();
    assert!(other > 0);
    assert_eq!(micro(&lab.renter.json(&["wallet", "balance"])["owed_by_us"]), micro(&after["cost"]));
    assert_eq!(lab.renter.json(&["wallet", "verify"])["ok"], true);
}
