//! The GPU driver, played by a small library that is compiled here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests may panic, and say what they skip"
)]

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use souk_attest::{DriverProblem, Gpu, GpuDriver, Inventory, UnusableGpu};
use souk_protocol::{Bytes, GpuIdentity, GpuSample, MemoryClass, Text};

/// Compiles the stand-in; `None` where there is no C compiler, which is said.
fn stand_in(name: &str, defines: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml-stand.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    compiler.args(defines.iter().map(|define| format!("-D{define}")));
    match compiler.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped {name}: no C compiler `cc` to build the stand-in of the GPU driver");
            None
        }
        Err(error) => panic!("cc: {error}"),
    }
}

/// The driver of a stand-in. The library's file is not needed once it is loaded.
fn driver(name: &str, defines: &[&str]) -> Option<GpuDriver> {
    let library = stand_in(name, defines)?;
    let driver = GpuDriver::load_from(&library).unwrap().expect("a driver");
    std::fs::remove_file(library).unwrap();
    Some(driver)
}

/// What the stand-in's GPU is when nothing but its name is known.
fn bare() -> Gpu {
    Gpu {
        index: 0,
        identity: GpuIdentity::from_name("NVIDIA A100-SXM4-80GB").unwrap(),
        name: Text::clipped("NVIDIA A100-SXM4-80GB"),
        uuid: None,
        pci: None,
        driver: None,
        mig: None,
        ecc: None,
        power_limit_mw: None,
        memory: None,
    }
}

const NOTHING: GpuSample = GpuSample { index: 0, busy_ppm: None, memory: None, power_mw: None, temperature_c: None };

#[test]
fn a_healthy_gpu_is_read_in_full() {
    let Some(driver) = driver("healthy", &[]) else { return };
    let inventory = Inventory::measure(Some(&driver));
    let expected = Gpu {
        identity: GpuIdentity::from_device("NVIDIA A100-SXM4-80GB", 81_920),
        uuid: Some(Text::clipped("GPU-11111111-2222-3333-4444-555555555555")),
        pci: Some(Text::clipped("00000000:17:00.0")),
        driver: Some(Text::clipped("550.54.15")),
        mig: Some(false),
        ecc: Some(true),
        power_limit_mw: Some(400_000),
        memory: Some(Bytes(80 << 30)),
        ..bare()
    };
    assert_eq!(*inventory.gpus, [expected]);
    assert_eq!(inventory.gpus[0].identity.to_string(), "A100 80GB sxm");
    assert!(inventory.unusable.is_empty());
    let sample = GpuSample {
        index: 0,
        busy_ppm: Some(370_000),
        memory: Some(Bytes(1 << 30)),
        power_mw: Some(71_500),
        temperature_c: Some(41),
    };
    assert_eq!(driver.sample(0), Ok(sample));
    assert_ne!(inventory.fingerprint(), Inventory::measure(None).fingerprint());
}

#[test]
fn an_old_driver_without_most_functions_still_shows_its_gpu() {
    let Some(driver) = driver("bare", &["BARE"]) else { return };
    assert_eq!(*Inventory::measure(Some(&driver)).gpus, [bare()]);
    assert_eq!(driver.sample(0), Ok(NOTHING));
}

#[test]
fn what_a_gpu_does_not_support_is_absent() {
    let Some(driver) = driver("refusing", &["REFUSING"]) else { return };
    let expected = Gpu { driver: Some(Text::clipped("550.54.15")), ..bare() };
    assert_eq!(*Inventory::measure(Some(&driver)).gpus, [expected]);
    assert_eq!(driver.sample(0), Ok(NOTHING));
}

#[test]
fn marks_for_unknown_become_absent_and_are_no_temperature_and_no_fact() {
    let Some(driver) = driver("blanks", &["BLANKS"]) else { return };
    let gpus = Inventory::measure(Some(&driver)).gpus;
    assert_eq!(*gpus, [bare()]);
    assert_eq!(gpus[0].identity.memory, Some(MemoryClass(80)));
    assert_eq!(driver.sample(0), Ok(NOTHING));
}

#[test]
fn a_lost_gpu_does_not_hide_the_others() {
    let Some(driver) = driver("second", &["SECOND_LOST"]) else { return };
    let inventory = Inventory::measure(Some(&driver));
    assert_eq!(inventory.gpus.len(), 1);
    let reason = Text::clipped("it has fallen off the bus: restart the machine");
    assert_eq!(*inventory.unusable, [UnusableGpu { index: 1, reason }]);
}

#[test]
fn a_gpu_that_falls_off_the_bus_is_lost_from_then_on_and_changes_the_fingerprint() {
    let mark = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lost-{}", std::process::id()));
    let define = format!("LOST_FILE=\"{}\"", mark.display());
    let Some(driver) = driver("lost", &[&define]) else { return };
    let before = Inventory::measure(Some(&driver));
    assert_eq!(before.gpus.len(), 1);
    std::fs::write(&mark, "").unwrap();
    let after = Inventory::measure(Some(&driver));
    let sample = driver.sample(0);
    std::fs::remove_file(&mark).unwrap();
    assert!(after.gpus.is_empty());
    assert_eq!(after.unusable[0].to_string(), "gpu 0: it has fallen off the bus: restart the machine");
    assert_eq!(sample, Err(after.unusable[0].clone()));
    assert_ne!(after.fingerprint(), before.fingerprint());
}

#[test]
fn a_machine_without_library_or_driver_has_no_gpus_and_no_error() {
    assert!(GpuDriver::load_from(Path::new("/nonexistent/libnvidia-ml.so.1")).unwrap().is_none());
    let Some(library) = stand_in("nodriver", &["INIT=9"]) else { return };
    assert!(GpuDriver::load_from(&library).unwrap().is_none());
    std::fs::remove_file(library).unwrap();
}

#[test]
fn a_driver_that_does_not_work_is_told_to_the_owner() {
    let cases = [
        ("mismatch", "INIT=18", DriverProblem::Mismatch),
        ("forbidden", "INIT=4", DriverProblem::Forbidden),
        ("broken", "INIT=999", DriverProblem::Other("an internal driver error occurred".to_owned())),
    ];
    for (name, define, expected) in cases {
        let Some(library) = stand_in(name, &[define]) else { return };
        assert_eq!(GpuDriver::load_from(&library).unwrap_err(), expected);
        std::fs::remove_file(library).unwrap();
    }
}

#[test]
fn the_driver_of_the_process_is_loaded_once() {
    let first = GpuDriver::load().map(|driver| driver.is_some());
    let second = GpuDriver::load().map(|driver| driver.is_some());
    assert_eq!(first, second);
}
