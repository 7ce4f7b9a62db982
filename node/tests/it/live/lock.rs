//! Two nodes on one home, two nodes on one port, and what a dead node leaves behind.

use super::lab::Lab;
use crate::home::free_port;

#[test]
fn a_second_node_names_the_first_and_a_dead_one_is_no_obstacle() {
    let mut lab = Lab::new(1);
    let provider = &mut lab.providers[0];
    let first = provider.pid();
    let second = provider.home.run(&["up"]);
    assert_eq!(second.code, Some(6), "{second:?}");
    assert!(second.stderr.contains(&first.to_string()), "{second:?}");
    let error = provider.home.run(&["up", "--json"]).error();
    assert!(error["message"].as_str().unwrap().contains(&first.to_string()), "{error}");
    assert_eq!(provider.json(&["status"])["pid"], first, "the first is not disturbed");

    provider.kill();
    let gone = provider.home.run(&["status"]);
    assert_eq!(gone.code, Some(3), "{gone:?}");
    assert!(gone.stderr.contains("souk up"), "{gone:?}");
    provider.up();
    assert_ne!(provider.pid(), first);
    assert_eq!(provider.json(&["status"])["pid"], provider.pid());
}

#[test]
fn a_taken_port_is_named() {
    let lab = Lab::new(1);
    let port = lab.providers[0].json(&["status"])["listen"].to_string();
    let port = port.split("/tcp/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let home = crate::home::Home::new();
    let api = free_port();
    home.write(
        "config/souk.toml",
        format!(
            "version = 1\n[node]\nname = \"late\"\nrole = \"renter\"\nprofile = \"lan\"\n[network]\n\
             listen = [\"/ip4/127.0.0.1/tcp/{port}\"]\n[api]\nlisten = \"127.0.0.1:{api}\"\n"
        ),
    );
    assert_eq!(home.run(&["init"]).code, Some(0));
    let file = lab.providers[0].home.path("config/network.toml");
    assert_eq!(home.run(&["network", "join", file.to_str().unwrap()]).code, Some(0));
    let up = home.run(&["up"]);
    assert!(up.code.is_some_and(|code| code == 6), "{up:?}");
    assert!(up.stderr.contains(&port), "{up:?}");

    let text = home.read("config/souk.toml");
    let taken = lab.renter.home.read("config/souk.toml");
    let taken = taken.split("[api]").nth(1).unwrap().split('"').nth(1).unwrap();
    home.write(
        "config/souk.toml",
        text.replace(&format!("tcp/{port}"), &format!("tcp/{}", free_port()))
            .replace(&format!("127.0.0.1:{api}"), taken),
    );
    let up = home.run(&["up"]);
    assert_eq!(up.code, Some(6), "{up:?}");
    assert!(up.stderr.contains(taken), "{up:?}");
}
