//! `init`, `key`, `network`: from nothing to a network.

use std::os::unix::fs::PermissionsExt as _;

use crate::home::{Home, free_port};

#[test]
fn init_writes_a_valid_file_and_a_private_key_and_says_where() {
    let home = Home::new();
    let run = home.run(&["init", "--role", "provider", "--profile", "lan", "--port", "5001", "--name", "attic"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let config = home.path("config/souk.toml");
    assert!(run.stdout.contains(&format!("created  {}", config.display())), "{}", run.stdout);
    assert!(run.stdout.contains("/ip4/0.0.0.0/udp/5001/quic-v1, /ip4/0.0.0.0/tcp/5001"), "{}", run.stdout);
    assert!(run.stdout.contains("api      127.0.0.1:5002"), "{}", run.stdout);
    let text = home.read("config/souk.toml");
    assert!(text.contains("name    = \"attic\"") && text.contains("role    = \"provider\""), "{text}");
    let mode = std::fs::metadata(home.path("data/key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let valid = home.run(&["config", "validate"]);
    assert_eq!((valid.code, valid.stderr.as_str()), (Some(0), ""), "{valid:?}");
}

#[test]
fn init_again_changes_nothing() {
    let home = Home::new();
    let first = home.run(&["init", "--json"]).json();
    home.write("config/souk.toml", "version = 1\n[node]\nname = \"mine\"\n");
    let run = home.run(&["init", "--json", "--port", "9"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stderr, "");
    let second = run.json();
    assert_eq!(second["node"], first["node"]);
    assert_eq!(second["created"], serde_json::json!([]));
    assert_eq!(second["kept"].as_array().unwrap().len(), 2);
    assert_eq!(home.read("config/souk.toml"), "version = 1\n[node]\nname = \"mine\"\n");
}

#[test]
fn every_role_and_profile_makes_a_valid_file() {
    for role in ["renter", "provider", "both"] {
        for profile in ["home", "server", "lan"] {
            let home = Home::new();
            let run = home.run(&["init", "--role", role, "--profile", profile]);
            assert_eq!(run.code, Some(0), "{role} {profile}: {run:?}");
            let run = home.run(&["config", "validate", "--json"]);
            assert_eq!(run.json()["not_available"], serde_json::json!([]), "{role} {profile}");
        }
    }
}

#[test]
fn the_key_is_shown_in_both_forms_and_never_its_secret() {
    let home = Home::made();
    let key = home.run(&["key", "show", "--json"]).json();
    assert_eq!(key["node"].as_str().unwrap().len(), 52);
    assert!(key["peer"].as_str().unwrap().starts_with("12D3Koo"), "{key}");
    let secret = home.read("data/key");
    let secret = secret.split_whitespace().last().unwrap();
    assert!(!key.to_string().contains(secret));
    assert_eq!(home.run(&["key", "show", "-q"]).stdout.trim_end(), key["node"].as_str().unwrap());
}

#[test]
fn a_key_that_others_may_read_stops_everything() {
    let home = Home::made();
    std::fs::set_permissions(home.path("data/key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let run = home.run(&["key", "show"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("mode 0644") && run.stderr.contains("chmod 600"), "{}", run.stderr);
}

#[test]
fn a_network_is_made_in_one_home_and_joined_in_another() {
    let (first, second) = (Home::made(), Home::made());
    let made = first.run(&["network", "new", "--name", "lab", "--open", "--json"]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""), "{made:?}");
    let made = made.json();
    let key = first.run(&["key", "show", "--json"]).json();
    let bootstrap = made["bootstrap"].as_array().unwrap();
    assert!(bootstrap.len() >= 2, "{made}");
    for address in bootstrap {
        let address = address.as_str().unwrap();
        assert!(address.ends_with(&format!("/p2p/{}", key["peer"].as_str().unwrap())), "{address}");
        assert!(!address.contains("0.0.0.0"), "{address}");
    }
    let file = first.path("config/network.toml");
    let joined = second.run(&["network", "join", file.to_str().unwrap(), "--json"]).json();
    assert_eq!(joined["id"], made["id"]);
    assert_eq!(second.run(&["network", "show", "--json"]).json(), made);
    // Joining again is no change, joining another network is refused.
    assert_eq!(second.run(&["network", "join", file.to_str().unwrap()]).code, Some(0));
    let run = second.run(&["network", "new", "--name", "other"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("belongs to the network \"lab\" already"), "{}", run.stderr);
}

#[test]
fn a_network_that_nobody_could_join_is_not_made() {
    let home = Home::new();
    home.write("config/souk.toml", "version = 1\n[network]\nlisten = [\"/ip4/10.1.2.3/tcp/4477\"]\n");
    let run = home.run(&["network", "new", "--name", "lab"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    for part in ["10.1.2.3", "node.profile = \"lan\"", "souk init --profile lan", "network.external"] {
        assert!(run.stderr.contains(part), "{part:?} is missing: {}", run.stderr);
    }
    assert!(!home.path("config/network.toml").exists());
    home.write("config/souk.toml", "version = 1\n[network]\nlisten = [\"/ip4/10.1.2.3/tcp/4477\"]\nexternal = [\"/dns4/node.example.net/tcp/4477\"]\n");
    assert_eq!(home.run(&["network", "new", "--name", "lab"]).code, Some(0));
    assert!(home.read("config/network.toml").contains("/dns4/node.example.net/tcp/4477/p2p/"));
}

#[test]
fn a_bad_name_or_file_of_a_network_is_refused_and_nothing_is_written() {
    let home = Home::made();
    let run = home.run(&["network", "new", "--name", "1lab"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("starting with a letter"), "{}", run.stderr);
    assert!(!home.path("config/network.toml").exists());
    let file = home.write("bad.toml", "version = 1\nname = 3\n");
    let run = home.run(&["network", "join", file.to_str().unwrap()]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("bad.toml"), "{}", run.stderr);
    assert_eq!(home.run(&["network", "join", "none.toml"]).code, Some(3));
    let run = home.run(&["network", "join", "/ip4/127.0.0.1/tcp/1/p2p/12D3"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("is no address to join by"), "{}", run.stderr);
    // Nobody listens on this port.
    let port = free_port();
    let run = home.run(&["network", "join", &format!("/ip4/127.0.0.1/tcp/{port}"), "--json"]);
    assert_eq!(run.error()["exit"], 6, "{run:?}");
    let far = Home::new();
    assert_eq!(far.run(&["init", "--profile", "home"]).code, Some(0));
    let run = far.run(&["network", "join", &format!("/ip4/127.0.0.1/tcp/{port}")]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("profile = \"lan\""), "{}", run.stderr);
    assert!(!home.path("config/network.toml").exists());
}

#[test]
fn the_network_flag_refuses_another_network() {
    let home = Home::made();
    home.run(&["network", "new", "--name", "lab"]);
    assert_eq!(home.run(&["network", "show", "--network", "lab"]).code, Some(0));
    let run = home.run(&["network", "show", "--network", "main"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("\"lab\", not \"main\""), "{}", run.stderr);
}
