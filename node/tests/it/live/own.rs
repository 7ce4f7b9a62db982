//! A node that does its own work itself.

use serde_json::Value;

use super::{
    lab::{Lab, Node, micro, path, tasks, text},
    module,
};

/// As many tasks of two seconds each, a core each.
fn job(node: &Node, count: u32, local: &str) -> String {
    module::busy(&node.home, 2_000);
    let file = node.home.write(
        "job.toml",
        format!(
            "version = 1\nname = \"own\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{{index}}\"]\n[resources]\ncpu = \"1..\"\n\
             memory = \"16MB..\"\n[market]\nbudget = \"0.02 CR\"\nlocal = \"{local}\"\n[limits]\ntimeout = \"60s\"\n[array]\ncount = {count}\n"
        ),
    );
    path(&file).to_owned()
}

/// By whom the tasks were done.
fn places(job: &Value, me: &Value) -> (usize, usize) {
    let attempts = job["tasks"].as_array().unwrap().iter().flat_map(|task| task["attempts"].as_array().unwrap());
    let (own, others): (Vec<&Value>, Vec<&Value>) = attempts.partition(|attempt| attempt["provider"] == *me);
    (own.len(), others.len())
}

#[test]
fn own_slots_are_filled_first_alone_or_never_and_cost_nothing() {
    let lab = Lab::with_renter(1, "both", &[]);
    let me = lab.renter.json(&["status"])["node"].clone();
    let cores = std::thread::available_parallelism().unwrap().get();
    let run = |count: u32, local: &str| {
        let file = job(&lab.renter, count, local);
        let plan = lab.renter.home.run(&["plan", "-f", &file, "--json"]).json();
        let ran = lab.renter.home.run(&["run", "-f", &file, "--json", "--timeout", "90s"]);
        assert_eq!(ran.code, Some(0), "{local}: {ran:?}");
        (plan, ran.json())
    };

    let more = u32::try_from(cores).unwrap() + 1;
    let (plan, first) = run(more, "first");
    let row = &plan["offers"][0];
    assert_eq!((&row["provider"], &row["local"], &row["rate"]), (&me, &true.into(), &"0.000000 CR/h".into()), "{plan}");
    assert_eq!(plan["matched"], 2, "{plan}");
    assert_eq!(tasks(&first, "done"), usize::try_from(more).unwrap());
    assert_eq!(places(&first, &me), (cores, 1), "{first}");
    let id = text(&first["id"]);
    for index in 0..more {
        let logged = lab.renter.home.run(&["logs", &format!("{id}/{index}")]);
        assert_eq!(logged.stdout, format!("begin\n{index}\n"), "{logged:?}");
    }
    // The one task of the provider is all that is owed, and all there is a receipt of.
    let receipts = lab.receipts(id);
    assert_eq!((receipts.len(), &receipts[0]["total"]), (1, &first["cost"]), "{receipts:?}");
    assert!(micro(&first["cost"]) > 0);
    lab.books_agree(&first["cost"]);
    assert_eq!(lab.renter.json(&["wallet", "history"]).as_array().unwrap().len(), 1);

    let (plan, only) = run(1, "only");
    assert_eq!(plan["offers"].as_array().unwrap().len(), 1, "{plan}");
    assert_eq!((places(&only, &me), micro(&only["cost"])), ((1, 0), 0), "{only}");
    let (plan, never) = run(1, "never");
    assert!(plan["offers"].as_array().unwrap().iter().all(|row| row["provider"] != me), "{plan}");
    assert_eq!(places(&never, &me), (0, 1), "{never}");
}

#[test]
fn a_node_killed_with_its_own_work_does_it_again() {
    let mut lab = Lab::with_renter(1, "both", &[]);
    let file = job(&lab.renter, 1, "only");
    let id = lab.renter.submit(&["-f", &file]);
    lab.renter.job_until(&id, |job| job["tasks"][0]["attempts"][0]["state"] == "running");
    for _ in 0..2 {
        lab.renter.kill();
        lab.renter.up();
    }
    let job = lab.renter.job_until(&id, |job| job["state"] == "succeeded");
    let attempts = job["tasks"][0]["attempts"].as_array().unwrap();
    assert_eq!((&attempts[0]["state"], &attempts.last().unwrap()["state"]), (&"lost".into(), &"done".into()), "{job}");
    assert_eq!(lab.renter.home.run(&["logs", &id]).stdout, "begin\n0\n");
    assert_eq!(micro(&job["cost"]), 0);
    assert_eq!(lab.renter.json(&["wallet", "verify"])["ok"], true);
}
