use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_tree_is_sound() {
    Cli::command().debug_assert();
}
