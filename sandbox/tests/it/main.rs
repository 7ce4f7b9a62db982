//! The sandbox against real child processes: what a stranger's module can and cannot do.

mod bench;
mod ends;
mod files;
mod guests;
mod modules;
mod output;
mod processes;
