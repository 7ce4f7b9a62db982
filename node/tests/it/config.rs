//! `config`: what is wrong with a node file, and what is in force.

use crate::home::{Home, run};

#[test]
fn all_errors_of_a_node_file_come_at_once_as_lines_that_editors_can_jump_to() {
    let home = Home::made();
    let path = home.write(
        "config/souk.toml",
        "version = 1\n[node]\nrole = \"seller\"\n[api]\nlisten = \"0.0.0.0:1\"\nlisten2 = 1\n",
    );
    let run = home.run(&["config", "validate"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.stdout, "");
    let path = path.display();
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(
        lines[0],
        format!("error: {path}:3: node.role = \"seller\": unknown word, one of provider, renter, both")
    );
    assert!(
        lines[1].starts_with(&format!("error: {path}:5: api.listen = \"0.0.0.0:1\": the API is for this machine only"))
    );
    assert!(
        lines[2].starts_with(&format!("error: {path}:6: api.listen2 = 1: unknown field, did you mean \"listen\"?"))
    );
    let run = home.run(&["config", "validate", "--json"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.json()["errors"][0]["path"], "node.role");
    assert_eq!(run.json()["errors"][0]["line"], 3);
    assert_eq!(run.error()["code"], "invalid_file");
}

#[test]
fn what_is_not_built_yet_is_warned_of() {
    let home = Home::made();
    home.write(
        "config/souk.toml",
        "version = 1\n[limits]\ndisk_free = \"50GB\"\n[workloads]\nruntimes = [\"wasm\", \"oci\"]\n",
    );
    let run = home.run(&["config", "validate"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr
            .contains("souk.toml:3: limits.disk_free: not available yet: a limit on free disk (a node with it refuses")
    );
    assert!(run.stderr.contains("souk.toml:5: workloads.runtimes: not available yet: containers"), "{}", run.stderr);
}

#[test]
fn odd_files_get_one_line_with_the_remedy() {
    let home = Home::made();
    for (content, needle) in [
        (b"version = 1\nname = \xff\n".as_slice(), "not UTF-8 at byte 19"),
        (b"version = 1\nversion = 1\n", "given twice"),
        (b"version = \n", "not valid TOML"),
        (b"", "write version = 1"),
    ] {
        home.write("config/souk.toml", content);
        let run = home.run(&["config", "show"]);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(needle), "{needle}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
    // A mark of the editor and line ends of Windows are no error.
    home.write("config/souk.toml", "\u{feff}version = 1\r\n[node]\r\nname = \"x\"\r\n");
    assert_eq!(home.run(&["config", "validate"]).code, Some(0));
    home.write("config/souk.toml", "#".repeat(300_000));
    let run = home.run(&["config", "show"]);
    assert!(run.stderr.contains("more than 262144 bytes"), "{}", run.stderr);
    std::fs::remove_file(home.path("config/souk.toml")).unwrap();
    std::fs::create_dir(home.path("config/souk.toml")).unwrap();
    let run = home.run(&["config", "show"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("no regular file"), "{}", run.stderr);
}

#[test]
fn the_origin_of_each_value_is_file_env_or_default() {
    let home = Home::made();
    let path = home.write("config/souk.toml", "version = 1\n[node]\nrole = \"renter\"\n");
    let mut command = home.command(&["config", "show", "--json"]);
    command.env("SOUK_API_LISTEN", "127.0.0.1:9");
    let shown = run(command).json();
    let find = |name: &str| shown.as_array().unwrap().iter().find(|setting| setting["path"] == name).unwrap().clone();
    assert_eq!(find("node.role")["origin"], format!("{}:3", path.display()));
    assert_eq!(find("api.listen")["origin"], "env SOUK_API_LISTEN");
    assert_eq!(find("api.listen")["value"], "\"127.0.0.1:9\"");
    assert_eq!(find("node.profile")["origin"], "default");
    let table = home.run(&["config", "show", "--origin"]).stdout;
    assert!(table.starts_with("FIELD "), "{table}");
}

#[test]
fn paths_follow_home_or_xdg() {
    let home = Home::new();
    let paths = home.run(&["config", "path", "--json"]).json();
    assert_eq!(paths["config"], home.path("config/souk.toml").display().to_string());
    let mut command = crate::home::plain(&home.path(""));
    command.args(["config", "path", "-q"]).env("XDG_CONFIG_HOME", "/x/config").env("XDG_DATA_HOME", "/x/data");
    assert_eq!(run(command).stdout, "/x/config/souk/souk.toml\n");
    let mut command = crate::home::plain(&home.path(""));
    command.args(["config", "path", "-q"]).env("HOME", "/h").env("XDG_CONFIG_HOME", "relative");
    assert_eq!(run(command).stdout, "/h/.config/souk/souk.toml\n");
    let mut command = crate::home::plain(&home.path(""));
    command.args(["config", "path"]);
    let run = run(command);
    assert!(run.stderr.contains("name a folder with --home DIR"), "{}", run.stderr);
}
