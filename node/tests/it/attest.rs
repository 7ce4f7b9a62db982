//! `attest verify`: on files alone.

use crate::{home::Home, receipt};

#[test]
fn a_sound_receipt_verifies_without_node_home_or_network() {
    let home = Home::new();
    home.write("a.receipt", receipt::sample());
    let run = home.run(&["attest", "verify", "a.receipt"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "receipts: 1 checked, all sound\n"), "{run:?}");
    assert_eq!(
        home.run(&["attest", "verify", "a.receipt", "--json"]).json(),
        serde_json::json!({"ok": true, "checked": 1, "failures": []})
    );
    assert!(!home.path("data").exists());
}

#[test]
fn one_flipped_byte_fails_with_the_file_and_the_reason() {
    let home = Home::new();
    let sound = receipt::sample();
    home.write("ok.receipt", &sound);
    for at in (0..sound.len()).step_by(97) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        home.write("bad.receipt", &bytes);
        let run = home.run(&["attest", "verify", "ok.receipt", "bad.receipt", "--json"]);
        assert_eq!(run.code, Some(9), "byte {at}: {run:?}");
        let found = run.json();
        assert_eq!((&found["ok"], &found["checked"]), (&false.into(), &2.into()), "byte {at}");
        let failures = found["failures"].as_array().unwrap();
        assert_eq!((failures.len(), &failures[0]["file"]), (1, &"bad.receipt".into()), "byte {at}");
        assert!(!failures[0]["reason"].as_str().unwrap().is_empty(), "byte {at}");
        assert_eq!(run.error()["code"], "verification_failed");
    }
    let run = home.run(&["attest", "verify", "ok.receipt", "bad.receipt"]);
    assert_eq!(run.code, Some(9));
    assert!(run.stderr.contains("bad.receipt: "), "{}", run.stderr);
}

#[test]
fn a_missing_file_is_not_found_and_another_file_is_no_receipt() {
    let home = Home::new();
    assert_eq!(home.run(&["attest", "verify", "none"]).code, Some(3));
    home.write("x", "hello");
    let run = home.run(&["attest", "verify", "x"]);
    assert_eq!(run.code, Some(9));
    assert!(run.stderr.contains("x: file: "), "{}", run.stderr);
}
