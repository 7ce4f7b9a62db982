//! The help: true, whole, and without escape bytes where nobody sees colours.

use crate::home::{Home, run};

/// The golden text. After a change that is meant: `souk --help > node/tests/it/help.txt`.
const GOLDEN: &str = include_str!("help.txt");

#[test]
fn the_help_is_the_golden_text() {
    let run = Home::new().run(&["--help"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(run.stdout, GOLDEN, "\n{}", run.stdout);
}

#[test]
fn short_help_works_on_every_command_and_has_no_escape_bytes() {
    let home = Home::new();
    let names = GOLDEN.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        let run = home.run(&[name, "-h"]);
        assert_eq!(run.code, Some(0), "{name}");
        assert!(run.stdout.contains("Usage: souk") && !run.stdout.contains('\u{1b}'), "{name}: {}", run.stdout);
    }
}

#[test]
fn no_arguments_show_the_help_as_an_error() {
    let run = run(crate::home::plain(&Home::new().path("")));
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("Usage: souk"), "{}", run.stderr);
}

#[test]
fn completions_are_scripts_for_their_shell() {
    for (shell, needle) in [("bash", "complete -F _souk"), ("zsh", "#compdef souk"), ("fish", "complete -c souk")] {
        let run = Home::new().run(&["completion", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(run.stdout.contains(needle), "{shell}");
    }
}

#[test]
fn the_version_is_one_line_or_one_object() {
    let run = Home::new().run(&["version"]);
    assert_eq!(run.stdout, format!("souk {} (wire format 1)\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(Home::new().run(&["version", "--json"]).json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(Home::new().run(&["--version"]).stdout, format!("souk {}\n", env!("CARGO_PKG_VERSION")));
}
