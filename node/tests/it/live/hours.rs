//! The owner's hours on a running node: read again on SIGHUP, kept at the door, and told to whoever asks.

use super::lab::{Lab, Node, micro};

fn hup(node: &Node) {
    let sent = std::process::Command::new("kill").args(["-HUP", &node.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn hours_are_read_again_on_sighup_and_a_bad_file_changes_nothing() {
    let lab = Lab::new(1);
    let provider = &lab.providers[0];
    let file = provider.home.read("config/souk.toml");
    assert_eq!(provider.json(&["node", "why"])["selling"], true);

    let shut = "[availability]\ntimezone = \"UTC\"\nexcept = [\"2020-01-01..2100-12-31\"]\n";
    provider.home.write("config/souk.toml", format!("{file}{shut}"));
    hup(provider);
    let why = provider.until(&["node", "why", "--json"], |run| run.json()["selling"] == false).json();
    let because = &why["because"][0];
    assert_eq!(
        (because["code"].as_str(), because["text"].as_str()),
        (Some("hours"), Some("closed by the calendar: 2020-01-01..2100-12-31 is excepted"))
    );
    lab.renter.until(&["offers", "--json"], |run| run.json()["matched"] == 0);

    provider.home.write("config/souk.toml", format!("{file}[availability]\ntimezone = \"PDT\"\n"));
    hup(provider);
    provider.until(&["status", "--json"], |_| provider.home.read("node.log").contains("nothing has changed"));
    assert_eq!(provider.json(&["node", "why"])["selling"], false);

    let peak = "[availability]\ntimezone = \"UTC\"\n[pricing]\npeak = [{ days = \"mon-sun\", factor = \"1.5\" }]\n";
    provider.home.write("config/souk.toml", format!("{file}{peak}"));
    hup(provider);
    provider.until(&["node", "why", "--json"], |run| run.json()["selling"] == true);
    let price = provider.json(&["node", "price", "show"]);
    assert_eq!((price["running"].as_bool(), price["factor"].as_str()), (Some(true), Some("1.5")));
    assert_eq!(price["components"][0]["price"], "0.012000 CR/h");

    let offers = lab.renter.until(&["offers", "--json"], |run| run.json()["matched"] == 1).json();
    assert_eq!(offers["offers"].as_array().unwrap().len(), 1);
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello/job.toml");
    let id = lab.renter.submit(&["-f", hello, "-y"]);
    let job = lab.renter.job_until(&id, |job| super::lab::ENDS.contains(&job["state"].as_str().unwrap()));
    assert_eq!(job["state"], "succeeded", "{job}");
    let earned =
        provider.until(&["node", "earnings", "--json"], |run| run.code == Some(0) && micro(&run.json()["earned"]) > 0);
    let today = earned.json()["days"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((today["billed"].as_u64(), today["unbilled"].as_u64()), (Some(1), Some(0)), "{today}");
    assert_eq!(today["earned"], job["cost"], "{today}");
}
