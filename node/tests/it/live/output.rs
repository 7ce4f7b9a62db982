//! What tasks print, to the byte, and the codes they end with.

use super::{
    lab::{Lab, path, text},
    module,
};

/// Flags that every job here has.
const LIMITS: [&str; 8] = ["--budget", "0.01 CR", "--task-timeout", "30s", "--memory", "16MB", "--timeout", "90s"];

/// Prints 4 bytes, then 100 000 in one write, then exits at once.
const BIG: &str = r#"(data (i32.const 32) "abc\n")
    (func (export "_start") (local $at i32)
        (loop $fill
            (i32.store8 (i32.add (i32.const 1024) (local.get $at)) (i32.add (i32.const 97) (i32.rem_u (local.get $at) (i32.const 26))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br_if $fill (i32.lt_u (local.get $at) (i32.const 100000))))
        (call $write (i32.const 32) (i32.const 4))
        (call $write (i32.const 1024) (i32.const 100000))
        (call $exit (i32.const 0)))"#;

/// Prints 64 times 64 KiB without a pause, then exits at once.
const FLOOD: &str = r#"(func (export "_start") (local $at i32) (local $round i32)
        (loop $again
            (memory.fill (i32.const 1024) (i32.add (i32.const 32) (local.get $round)) (i32.const 65536))
            (i32.store8 (i32.const 66559) (i32.const 10))
            (call $write (i32.const 1024) (i32.const 65536))
            (local.set $round (i32.add (local.get $round) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $round) (i32.const 64))))
        (call $exit (i32.const 0)))"#;

#[test]
fn large_output_at_the_end_arrives_to_the_byte() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    let filled: String = (0..100_000_u32).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect();
    let flood: String = (0..64_u8).map(|round| char::from(32 + round).to_string().repeat(65_535) + "\n").collect();
    for (name, body, expected, times) in
        [("big.wasm", BIG, format!("abc\n{filled}"), 5), ("flood.wasm", FLOOD, flood, 3)]
    {
        let wasm = module::module(home, name, body);
        for _ in 0..times {
            let ran = home.run(&[&["run", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert_eq!(ran.stdout.len(), expected.len());
            assert!(ran.stdout == expected, "{name}: same length, other bytes");
            let id = text(&lab.renter.json(&["ps", "-a"])[0]["id"]).to_owned();
            let logged = home.run(&["logs", &id]);
            assert_eq!((logged.code, logged.stdout.len()), (Some(0), expected.len()));
            assert!(logged.stdout == expected, "{name}: same length, other bytes");
        }
    }
}

#[test]
fn exit_codes_are_kept_whole() {
    let lab = Lab::new(1);
    let home = &lab.renter.home;
    for code in [0, 1, 137, 255, 4_294_967_295_u32] {
        let wasm = module::exits(home, code);
        let ran = home.run(&[&["run", "--json", "--attempts", "1", "--wasm", path(&wasm)], LIMITS.as_slice()].concat());
        assert_eq!(ran.code, Some(if code == 0 { 0 } else { 100 }), "{ran:?}");
        let job = ran.json();
        let job = lab.renter.job(text(&job["id"]));
        assert_eq!(job["state"], if code == 0 { "succeeded" } else { "failed" });
        assert_eq!(job["tasks"][0]["attempts"][0]["exit_code"], code, "{job}");
    }
    let returns = module::module(home, "returns.wasm", r#"(func (export "_start"))"#);
    let ran = home.run(&[&["run", "--json", "--wasm", path(&returns)], LIMITS.as_slice()].concat());
    assert_eq!((ran.code, &ran.json()["tasks"][0]["attempts"][0]["exit_code"]), (Some(0), &0.into()), "{ran:?}");
}
