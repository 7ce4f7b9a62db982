//! The `souk` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A runner is this program in another process, which confines itself before it reads a guest's byte: no argument
    // parser, no runtime, no threads before that.
    if std::env::args_os().nth(1).is_some_and(|word| word == "runner") {
        return souk_sandbox::runner_main();
    }
    souk_node::cli::main()
}
