//! From the owner's settings and the machine to what is on sale.

use std::path::Path;

use souk_attest::Inventory;
use souk_matcher::Policy;
use souk_protocol::{Bytes, Capacity, CreditLimits, Isolation, MilliCpu, Runtime, Text, Tier};

use super::Config;

/// What a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processors that this process may use.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
    /// Free disk at the data folder.
    pub disk: Bytes,
}

impl Machine {
    /// Measures this machine; the disk is that of `folder` or of the nearest folder above it.
    #[must_use]
    pub fn measure(folder: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        // A container's limit is what counts there, not the machine it runs on.
        let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
        let disk = Inventory::disk_free(folder).unwrap_or(Bytes(0));
        Self { cpu: MilliCpu::from_cores(cores), memory: Bytes(system.total_memory().min(limit)), disk }
    }
}

/// What the owner sells of a machine. A node that only buys works for itself if its file has an `[offer]`; `None` if it
/// has none.
#[must_use]
pub fn policy(config: &Config, machine: &Machine, credit: &CreditLimits) -> Option<Policy> {
    let configured = config
        .settings
        .iter()
        .any(|setting| setting.path.starts_with("offer.") && !matches!(setting.origin, super::Origin::Default));
    if !config.role.sells() && !configured {
        return None;
    }
    Some(Policy {
        name: Text::clipped(&config.name),
        region: Text::clipped(&config.region),
        total: Capacity {
            cpu: machine.cpu.saturating_sub(config.reserve.cpu),
            memory: machine.memory.saturating_sub(config.reserve.memory),
            disk: machine.disk.saturating_sub(config.reserve.disk),
        },
        // Only what can be executed is offered, whatever the file allows.
        runtimes: config.runtimes.iter().copied().filter(|runtime| *runtime == Runtime::Wasm).collect(),
        isolation: vec![Isolation::W0],
        tiers: Tier::ALL.to_vec(),
        floor: config.floor,
        ask: config.ask,
        standing: true,
        pricing: config.pricing.clone(),
        calendar: config.availability.calendar.clone(),
        at_window_end: config.availability.at_window_end,
        notice: config.availability.notice,
        max_duration: config.max_duration,
        stranger_limit: credit.stranger,
        strangers_limit: credit.strangers,
        own_only: !config.role.sells(),
        deny: config.deny.clone(),
        addresses: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use souk_protocol::Params;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(&format!("version = 1\n{text}"), Path::new("/")).unwrap()
    }

    #[test]
    fn the_reserve_is_never_sold_and_only_wasm_is_offered() {
        let machine = Machine { cpu: MilliCpu(4_000), memory: Bytes(8_000), disk: Bytes(100) };
        let config =
            config("[offer]\nreserve = { cpu = 1, memory = \"9kB\" }\n[workloads]\nruntimes = [\"wasm\", \"oci\"]\n");
        let policy = policy(&config, &machine, &Params::default().credit).unwrap();
        assert_eq!(policy.total, Capacity { cpu: MilliCpu(3_000), memory: Bytes(0), disk: Bytes(100) });
        assert_eq!(policy.runtimes, [Runtime::Wasm]);
        assert_eq!(policy.stranger_limit.to_string(), "0.050000 CR");
    }

    /// Case S3: a host of 64 GiB offers 64 GiB less what is kept, to the byte.
    #[test]
    fn case_s3_a_host_of_64_gib_offers_all_of_it_but_the_reserve() {
        let machine = Machine { cpu: MilliCpu(8_000), memory: Bytes(64 << 30), disk: Bytes(1_000) };
        for (reserve, left) in [
            ("", 68_719_476_736),
            ("[offer]\nreserve = { memory = \"8GiB\" }\n", 60_129_542_144),
            ("[offer]\nreserve = { memory = \"8GB\" }\n", 60_719_476_736),
        ] {
            let policy = policy(&config(reserve), &machine, &Params::default().credit).unwrap();
            assert_eq!(policy.total.memory, Bytes(left), "{reserve}");
        }
    }

    /// Case S3: what the kernel calls kB are 1,024 bytes.
    #[test]
    fn case_s3_the_memory_measured_is_what_the_kernel_has() {
        let kernel = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = kernel.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kibibytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let measured = Machine::measure(Path::new("/")).memory.0;
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
        assert_eq!(measured, (kibibytes * 1_024).min(limit));
    }

    #[test]
    fn a_renter_sells_nothing() {
        let machine = Machine::measure(Path::new("/nonexistent/folder"));
        assert!(machine.cpu.0 >= 1_000 && machine.memory.0 > 0 && machine.disk.0 > 0, "{machine:?}");
        let policy = |text: &str| super::policy(&config(text), &machine, &Params::default().credit);
        assert!(policy("[node]\nrole = \"renter\"\n").is_none());
        // Its own jobs may run on what it sets aside for them.
        let own = policy("[node]\nrole = \"renter\"\n[offer]\nreserve = { cpu = 1 }\n").unwrap();
        assert!(own.own_only);
        assert!(!policy("[node]\nrole = \"both\"\n").unwrap().own_only);
    }
}
