//! Pipes, colours and terminals.

use std::{io::Read as _, process::Stdio};

use crate::home::{Home, run};

#[test]
fn a_closed_pipe_is_no_panic_and_no_failure() {
    let home = Home::new();
    for args in [["completion", "bash"].as_slice(), &["--help"], &["completion", "zsh"]] {
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 16];
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn no_color_is_heeded_and_pipes_have_none() {
    let home = Home::new();
    for (name, value) in [("NO_COLOR", "1"), ("SOUK_NO_COLOR", "1"), ("TERM", "xterm-256color")] {
        let mut command = home.command(&["nosuch"]);
        command.env(name, value);
        let run = run(command);
        assert!(!run.stderr.contains('\u{1b}'), "{name}: {:?}", run.stderr);
    }
    assert!(!home.run(&["nosuch", "--no-color"]).stderr.contains('\u{1b}'));
}

#[test]
fn stdout_that_cannot_be_written_is_an_error() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = home.command(&["version"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"));
}
