//! Many tasks over several providers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    lab::{Lab, attempts, billed, micro, path, tasks, text},
    module,
};

#[test]
fn an_array_spreads_over_providers_and_never_runs_more_at_once_than_it_may() {
    let lab = Lab::new(2);
    module::busy(&lab.renter.home, 300);
    let file = lab.renter.home.write(
        "job.toml",
        "version = 1\nname = \"twelve\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{A}{B}\"]\n[resources]\ncpu = \"1..\"\nmemory = \"16MB..\"\n\
         [market]\nmax_price = \"0.05 CR/h\"\nbudget = \"0.02 CR\"\n[limits]\ntimeout = \"30s\"\n\
         [array]\nmatrix = { B = [\"0\", \"1\", \"2\", \"3\"], A = [\"x\", \"y\", \"z\"] }\nmax_parallel = 3\n",
    );
    let ran = lab.renter.home.run(&["run", "-f", path(&file), "--json", "--timeout", "90s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let job = ran.json();
    assert_eq!((tasks(&job, "done"), billed(&job)), (12, 12), "{job}");
    assert_eq!(attempts(&job).values().sum::<usize>(), 12, "{job}");

    let all: Vec<&Value> = job["tasks"].as_array().unwrap().iter().map(|task| &task["attempts"][0]).collect();
    for one in &all {
        let (started, ended) = (text(&one["started"]), text(&one["ended"]));
        let at_once =
            all.iter().filter(|other| text(&other["started"]) <= started && started < text(&other["ended"])).count();
        assert!((1..=3).contains(&at_once), "{at_once} at {started}: {job}");
        assert!(started < ended);
    }
    let providers: BTreeSet<&str> = all.iter().map(|one| text(&one["provider"])).collect();
    assert_eq!(providers.len(), 2, "two cores each, three at once: {job}");

    let id = text(&job["id"]);
    for (index, value) in ["x0", "x1", "x2", "x3", "y0", "y1", "y2", "y3", "z0", "z1", "z2", "z3"].iter().enumerate() {
        let logged = lab.renter.home.run(&["logs", id, "--index", &index.to_string()]);
        assert_eq!((logged.code, logged.stdout), (Some(0), format!("begin\n{value}\n")));
    }
    assert_eq!(lab.renter.home.run(&["logs", id, "--index", "12"]).code, Some(3));

    let leases: BTreeSet<String> =
        job["leases"].as_array().unwrap().iter().map(|lease| text(&lease["lease"]).to_owned()).collect();
    let receipts = lab.receipts(id);
    let of: Vec<&str> = receipts.iter().map(|one| text(&one["lease"])).collect();
    assert_eq!(of.len(), leases.len(), "one a lease");
    assert!(of.iter().all(|lease| leases.contains(*lease)));
    assert_eq!(receipts.iter().map(|one| micro(&one["total"])).sum::<u64>(), micro(&job["cost"]));
    lab.books_agree(&job["cost"]);
}
