//! Markets of real processes on loopback in which things go wrong: killed nodes, hostile modules, endless work.

mod api;
mod array;
mod book;
mod crash;
mod guests;
mod hours;
mod join;
mod lab;
mod lock;
mod logs;
mod module;
mod newcomer;
mod output;
mod own;
mod simulated;
mod storm;
