//! Joining by the address of a node, and finding each other again.

use super::{
    lab::{Lab, attempts, eventually, path, tasks, text},
    module,
};
use crate::home::{Home, free_port};

#[test]
fn a_node_joins_by_the_address_of_any_other_node() {
    let lab = Lab::new(1);
    let expected = lab.providers[0].json(&["network", "show"]);
    // Any node answers, not only the one that made the network.
    for node in [&lab.providers[0], &lab.renter] {
        let listen = node.json(&["status"])["listen"].clone();
        for address in listen.as_array().unwrap().iter().map(text) {
            let home = Home::made();
            let joined = home.run(&["network", "join", address, "--json"]);
            assert_eq!((joined.code, joined.stderr.as_str()), (Some(0), ""), "{address} {joined:?}");
            assert_eq!(joined.json(), expected);
            assert_eq!(home.run(&["network", "show", "--json"]).json(), expected);
        }
    }
    let address = text(&lab.providers[0].json(&["status"])["listen"][0]).to_owned();
    let (bare, key) = address.split_once("/p2p/").unwrap();

    let home = Home::made();
    let joined = home.run(&["network", "join", bare]);
    assert_eq!(joined.code, Some(0), "{joined:?}");
    assert!(joined.stdout.contains(text(&expected["id"])), "{joined:?}");
    assert!(joined.stderr.contains("names no /p2p/ key"), "{joined:?}");

    // Another key than the one that was asked for does not answer.
    let other = text(&lab.renter.json(&["key", "show"])["peer"]).to_owned();
    assert_ne!(key, other);
    let home = Home::made();
    let refused = home.run(&["network", "join", &format!("{bare}/p2p/{other}")]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(!home.path("config/network.toml").exists());
}

#[test]
fn a_provider_that_comes_back_elsewhere_finds_its_renter() {
    let mut lab = Lab::new(1);
    module::busy(&lab.renter.home, 2_000);
    let file = lab.renter.home.write(
        "job.toml",
        "version = 1\nname = \"four\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{index}\"]\n[resources]\ncpu = \"1..\"\nmemory = \"16MB..\"\n\
         [market]\nmax_price = \"0.05 CR/h\"\nbudget = \"0.02 CR\"\n[limits]\ntimeout = \"60s\"\n[array]\ncount = 6\n",
    );
    let id = lab.renter.submit(&["-f", path(&file)]);
    lab.renter.job_until(&id, |job| attempts(job).get("running").is_some_and(|running| *running >= 1));
    eventually("the provider keeps where its renter is", || {
        std::fs::read_to_string(lab.providers[0].home.path("data/partners.json"))
            .is_ok_and(|kept| kept.contains("/tcp/"))
    });
    lab.providers[0].kill();

    // New ports: nobody can dial it where it was, and the only bootstrap address of the network is its own old one.
    let config = lab.providers[0].home.read("config/souk.toml");
    let old = config.split("/udp/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let moved = config.replace(&format!("/{old}"), &format!("/{}", free_port()));
    assert_ne!(moved, config);
    lab.providers[0].home.write("config/souk.toml", moved);
    lab.providers[0].up();

    let job = lab.renter.job_until(&id, |job| job["state"] == "succeeded");
    assert_eq!(tasks(&job, "done"), 6, "{job}");
    assert!(attempts(&job).get("lost").is_some_and(|lost| *lost >= 1), "{job}");
    lab.receipts(&id);
    lab.books_agree(&job["cost"]);
}

#[test]
fn the_end_of_a_timeout_stops_a_node_as_a_signal_does() {
    let mut lab = Lab::new(1);
    lab.renter.stop();
    let up = lab.renter.home.run(&["up", "--timeout", "2s"]);
    assert_eq!(up.code, Some(7), "{up:?}");
    assert!(up.stderr.contains("stopping") && up.stderr.contains("error: not done within 2s"), "{up:?}");
    let status = lab.renter.home.run(&["status"]);
    assert_eq!(status.code, Some(3), "it has taken its address back: {status:?}");
    assert_eq!(lab.renter.home.run(&["store", "verify"]).code, Some(0));
}
