//! Where real nodes and the simulator overlap they must say the same: one small market, run by both.
//!
//! Machines, prices, jobs and run times are one [`souk_sim::Plan`]. Processes on loopback run it first; the simulator then
//! gets the rules of their network file and what their users did and when. What the rules determine must be equal to the
//! millionth of a credit; what the machine decides is printed side by side and may differ by a factor.

mod came;
mod market;
mod real;
mod virtually;

use came::{assert_equal, assert_near, table};
use market::Market;

fn compared(providers: usize) {
    let market = Market::new(providers);
    let (real, did) = real::run(&market);
    let simulated = virtually::run(&market, &did);
    #[allow(clippy::print_stderr, reason = "the difference is what this test is for")]
    {
        eprintln!("{}", table(&market, &real, &simulated));
    }
    assert_equal(&market, &real, &simulated);
    assert_near(&real, &simulated);
}

#[test]
fn ten_real_nodes_and_ten_simulated_ones_come_to_the_same() {
    compared(8);
}

/// `cargo test --release -p souk --test it -- --ignored --nocapture fifty_real_nodes`: half a minute on two cores, 2 GB.
#[test]
#[ignore = "fifty processes want more than two cores: run it by hand"]
fn fifty_real_nodes_and_fifty_simulated_ones_come_to_the_same() {
    compared(48);
}
