//! Kill after kill: whatever dies, and whenever, the books stay sound and nothing is paid twice.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    lab::{ENDS, Lab, PATIENCE, billed, micro, path, tasks, text},
    module,
};

/// When the next process is killed after the last one was back, in ms: at odd moments of tasks that take 200 ms.
const MOMENTS: [u64; 6] = [130, 310, 45, 520, 5, 260];

#[test]
fn nodes_killed_again_and_again_finish_the_job_and_pay_each_task_once() {
    let mut lab = Lab::with(2, &[("unknown_after = \"15s\"", "unknown_after = \"6s\"")]);
    module::busy(&lab.renter.home, 200);
    let file = lab.renter.home.write(
        "job.toml",
        "version = 1\nname = \"storm\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{index}\"]\n[resources]\ncpu = \"1..\"\nmemory = \"16MB..\"\n\
         [market]\nmax_price = \"0.05 CR/h\"\nbudget = \"0.03 CR\"\n[limits]\ntimeout = \"30s\"\n[retry]\nattempts = 10\n[array]\ncount = 40\n",
    );
    let id = lab.renter.submit(&["-f", path(&file)]);
    for (round, moment) in MOMENTS.into_iter().enumerate() {
        sleep(Duration::from_millis(moment));
        let node = match round % 3 {
            0 => &mut lab.providers[0],
            1 => &mut lab.renter,
            _ => &mut lab.providers[1],
        };
        node.kill();
        node.up();
    }
    let started = Instant::now();
    let job = loop {
        let job = lab.renter.job(&id);
        if ENDS.contains(&text(&job["state"])) {
            break job;
        }
        assert!(started.elapsed() < 2 * PATIENCE, "{job}\n{}", lab.renter.json(&["job", "why", &id]));
        sleep(Duration::from_millis(200));
    };
    assert_eq!((&job["state"], tasks(&job, "done")), (&"succeeded".into(), 40), "{job}");
    for index in 0..40 {
        let logged = lab.renter.home.run(&["logs", &format!("{id}/{index}")]);
        assert_eq!(logged.stdout, format!("begin\n{index}\n"), "{logged:?}");
    }
    let receipts = lab.receipts(&id);
    let job = lab.renter.job(&id);
    assert_eq!(receipts.iter().map(|one| one["billed"].as_u64().unwrap()).sum::<u64>(), billed(&job) as u64);
    assert_eq!(receipts.iter().map(|one| micro(&one["total"])).sum::<u64>(), micro(&job["cost"]));
    for task in job["tasks"].as_array().unwrap() {
        let attempts = task["attempts"].as_array().unwrap();
        let paid = attempts.iter().filter(|one| one["billed"] == true && one["state"] == "done").count();
        assert_eq!(paid, 1, "{task}");
    }
    lab.books_agree(&job["cost"]);
}
