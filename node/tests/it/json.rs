//! stdout purity: with `--json` it is one value, whatever the command.

use crate::home::Home;

#[test]
fn every_command_that_needs_no_node_gives_one_json_value() {
    let home = Home::made();
    home.run(&["network", "new", "--name", "lab"]);
    home.write("m.wasm", b"\0asm\x01\0\0\0");
    home.write("job.toml", "version = 1\nname = \"t\"\n[runtime]\nwasm = \"./m.wasm\"\n");
    let receipt = crate::receipt::sample();
    home.write("ok.receipt", receipt);
    let commands: &[&[&str]] = &[
        &["init"],
        &["version"],
        &["key", "show"],
        &["config", "show"],
        &["config", "show", "--origin"],
        &["config", "validate"],
        &["config", "path"],
        &["network", "show"],
        &["network", "join", "config/network.toml"],
        &["job", "validate", "job.toml"],
        &["attest", "verify", "ok.receipt"],
    ];
    for args in commands {
        for form in [["--json"].as_slice(), &["-o", "json"], &["--json", "-v"], &["--json", "-q"]] {
            let run = home.run(&[args, form].concat());
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?} {form:?} {run:?}");
            run.json();
        }
    }
}

#[test]
fn the_doctor_gives_one_json_value_whether_healthy_or_not() {
    let home = Home::made();
    let run = home.run(&["node", "doctor", "--json"]);
    let value = run.json();
    let checks = value["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["id"] == "sandbox"), "{value}");
    assert_eq!(run.code, Some(if value["healthy"] == true { 0 } else { 1 }), "{value}");
}

#[test]
fn a_store_that_is_not_there_yet_is_told_apart_from_a_damaged_one() {
    let home = Home::new();
    let run = home.run(&["store", "verify"]);
    assert_eq!(run.code, Some(3), "{run:?}");
}
