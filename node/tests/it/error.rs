//! Exit codes and errors: the same for people and for scripts.

use crate::home::{Home, run};

#[test]
fn a_command_that_needs_a_node_exits_3_and_says_how_to_start_one() {
    let home = Home::made();
    let commands: &[&[&str]] = &[
        &["status"],
        &["ps"],
        &["logs", "abcd"],
        &["cancel", "abcd"],
        &["job", "list"],
        &["job", "get", "abcd"],
        &["job", "why", "abcd"],
        &["job", "events", "abcd"],
        &["job", "wait", "abcd"],
        &["job", "outputs", "abcd"],
        &["job", "cost", "abcd"],
        &["job", "receipts", "abcd"],
        &["node", "status"],
        &["node", "why"],
        &["wallet", "balance"],
        &["wallet", "history"],
        &["wallet", "verify"],
        &["attest", "show", "abcd"],
    ];
    for args in commands {
        let run = home.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{args:?} {run:?}");
        let hint =
            format!("hint: start it: souk up --home {}", home.path("").display().to_string().trim_end_matches('/'));
        assert_eq!(run.stderr, format!("error: no node runs in this home\n{hint}\n"), "{args:?}");
        let run = home.run(&[args, ["--json"].as_slice()].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{args:?} {run:?}");
        assert_eq!(run.error()["code"], "not_running", "{args:?}");
    }
}

#[test]
fn an_address_left_by_a_crash_means_that_no_node_runs() {
    let home = Home::made();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    home.write("data/api", format!("{address}\n"));
    home.write("data/token", "t\n");
    assert_eq!(home.run(&["status"]).code, Some(3));
    home.write("data/api", "nonsense\n");
    let run = home.run(&["status"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("\"nonsense\" is no address"), "{}", run.stderr);
}

#[test]
fn usage_errors_exit_2_with_one_object_under_json() {
    let home = Home::made();
    let wrong: &[&[&str]] = &[
        &["nosuch"],
        &["ps", "-o", "xml"],
        &["ps", "--nosuch"],
        &["logs"],
        &["ps", "--timeout", "5"],
        &["ps", "--timeout", "0s"],
        &["init", "--port", "0"],
        &["init", "--role", "owner"],
        &["offers", "--gpu", "..."],
        &["offers", "--gpu", "4090"],
        &["offers", "--sort", "name"],
        &["wallet", "trust", "x", "5"],
        &["run"],
        &["job", "get", "../x"],
        &["logs", "abcd/x"],
    ];
    for args in wrong {
        let run = home.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?} {run:?}");
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        let run = home.run(&[["--json"].as_slice(), args].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?} {run:?}");
        assert_eq!(run.error()["code"], "usage", "{args:?}");
    }
}

#[test]
fn json_errors_are_wanted_by_flag_or_environment() {
    let home = Home::new();
    for args in [
        ["status", "--json"].as_slice(),
        &["status", "-o", "json"],
        &["status", "-ojson"],
        &["status", "--output=json"],
    ] {
        assert_eq!(home.run(args).error()["code"], "not_running", "{args:?}");
    }
    for (name, value) in [("SOUK_JSON", "1"), ("SOUK_OUTPUT", "json")] {
        let mut command = home.command(&["status"]);
        command.env(name, value);
        assert_eq!(run(command).error()["code"], "not_running", "{name}");
        let mut command = home.command(&["nosuch"]);
        command.env(name, value);
        assert_eq!(run(command).error()["code"], "usage", "{name}");
    }
    let mut command = home.command(&["status"]);
    command.env("SOUK_JSON", "0");
    assert!(run(command).stderr.starts_with("error: "));
}

#[test]
fn yaml_says_what_json_says() {
    let home = Home::made();
    assert_eq!(home.run(&["network", "new", "--name", "lab"]).code, Some(0));
    let json = home.run(&["network", "show", "--json"]).json();
    let yaml = home.run(&["network", "show", "-o", "yaml"]);
    assert_eq!((yaml.code, yaml.stderr.as_str()), (Some(0), ""));
    let lines: Vec<String> = yaml.stdout.lines().map(|line| line.replace(['"', '\''], "")).collect();
    for field in ["name", "id", "open", "threshold"] {
        let value = json[field].as_str().map_or_else(|| json[field].to_string(), str::to_owned);
        assert!(lines.contains(&format!("{field}: {value}")), "{field}: {value}\n{}", yaml.stdout);
    }
    let period = format!("  period: {}", json["params"]["period"].as_str().unwrap());
    assert!(lines.contains(&period), "{period}\n{}", yaml.stdout);
    // Errors stay text: nobody asked for JSON on stderr.
    assert!(home.run(&["status", "-o", "yaml"]).stderr.starts_with("error: "));
}

#[test]
fn a_command_of_a_later_version_is_unknown_not_ignored() {
    let home = Home::new();
    for command in ["top", "data", "ui", "secret", "schema", "net"] {
        let run = home.run(&[command]);
        assert_eq!(run.code, Some(2), "{command}");
        assert!(run.stderr.contains("unrecognized subcommand"), "{}", run.stderr);
    }
}

#[test]
fn a_node_needs_a_network_and_says_how_to_get_one() {
    let home = Home::made();
    for args in [["up"].as_slice(), &["offers"], &["peers"]] {
        let run = home.run(args);
        assert_eq!(run.code, Some(3), "{args:?} {run:?}");
        assert!(
            run.stderr.contains("belongs to no network") && run.stderr.contains("souk network new"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn up_refuses_a_file_that_asks_for_what_is_not_built() {
    let home = Home::made();
    home.run(&["network", "new", "--name", "lab"]);
    home.write("config/souk.toml", "version = 1\n[availability]\nrequire_idle = \"15m\"\n");
    let run = home.run(&["up"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("availability.require_idle: not available yet"), "{}", run.stderr);
}

#[test]
fn up_refuses_a_taken_port_by_name() {
    let home = Home::made();
    home.run(&["network", "new", "--name", "lab"]);
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    home.write("config/souk.toml", format!("version = 1\n[api]\nlisten = \"{address}\"\n"));
    let run = home.run(&["up", "--json"]);
    assert_eq!(run.code, Some(6), "{run:?}");
    assert_eq!(run.error()["message"], format!("api.listen: {address} is taken by another program"));
}
