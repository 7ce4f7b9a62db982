//! The runner as a program of its own: what `souk runner` is in the product, for this crate's tests.

fn main() -> std::process::ExitCode {
    souk_sandbox::runner_main()
}
