//! What a machine has, as far as it can be read without privileges.

use std::path::Path;

use serde::{Deserialize, Serialize};
use souk_protocol::{Bytes, GpuIdentity, Hash, List, MAX_GPUS, Text, codec};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use crate::{
    driver::GpuDriver,
    known::{known_text, known_u64},
};

/// Most GPUs listed: [`MAX_GPUS`], more than any single machine holds.
pub(crate) const GPU_LIST: usize = MAX_GPUS as usize;
/// Largest encoded part of an inventory that its fingerprint covers, in bytes: 64 GPUs of at most 400 bytes.
const MAX_FINGERPRINTED: usize = 32 * 1024;
/// Memory counts in the fingerprint by whole binary gigabytes, since kernels keep differing amounts to themselves.
const FINGERPRINT_MEMORY: u64 = 1 << 30;

/// The parts of a machine. What could not be read is `None`, never zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The processor by its own name.
    pub cpu_model: Option<Text<128>>,
    /// Logical processors of the machine, not of a container's share.
    pub cores: Option<u32>,
    /// Memory of the machine, not of a container's share.
    pub memory: Option<Bytes>,
    /// Release of the running kernel.
    pub kernel: Option<Text<128>>,
    /// GPUs that answer, in the driver's order.
    pub gpus: List<Gpu, GPU_LIST>,
    /// GPUs that the driver counts and that cannot be used.
    pub unusable: List<UnusableGpu, GPU_LIST>,
}

/// A GPU as its driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's index; may be another after a restart of the machine.
    pub index: u16,
    /// What it is.
    pub identity: GpuIdentity,
    /// The name it was identified by.
    pub name: Text<96>,
    /// Its unchanging id: `GPU-` and a UUID.
    pub uuid: Option<Text<96>>,
    /// Its place on the bus: `00000000:17:00.0`.
    pub pci: Option<Text<32>>,
    /// Version of the driver.
    pub driver: Option<Text<80>>,
    /// Whether it is cut into slices.
    pub mig: Option<bool>,
    /// Whether its memory corrects errors.
    pub ecc: Option<bool>,
    /// Power limit in force, in milliwatts.
    pub power_limit_mw: Option<u32>,
    /// Memory, in all.
    pub memory: Option<Bytes>,
}

/// A GPU that is there and cannot be used: fallen off the bus, waiting for a reset, closed to this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("gpu {index}: {reason}")]
pub struct UnusableGpu {
    /// The driver's index.
    pub index: u16,
    /// The driver's word on it.
    pub reason: Text<120>,
}

impl Inventory {
    /// Reads this machine, and its GPUs if there is a driver.
    ///
    /// Blocks, and for ever if the driver hangs: call it on a thread that can be given up.
    #[must_use]
    pub fn measure(driver: Option<&GpuDriver>) -> Self {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        let (gpus, unusable) = driver.map(GpuDriver::gpus).unwrap_or_default();
        Self {
            cpu_model: system.cpus().iter().find_map(|cpu| known_text(cpu.brand())),
            cores: u32::try_from(system.cpus().len()).ok().filter(|count| *count > 0),
            memory: known_u64(system.total_memory()).filter(|bytes| *bytes > 0).map(Bytes),
            kernel: System::kernel_version().and_then(|release| known_text(&release)),
            gpus,
            unusable,
        }
    }

    /// Free space for unprivileged users on the disk of `folder`, or of the nearest folder above it that exists.
    #[must_use]
    pub fn disk_free(folder: &Path) -> Option<Bytes> {
        let disk = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
        disk.f_bavail.checked_mul(disk.f_frsize).map(Bytes)
    }

    /// A hash of what stays the same until parts or the driver are replaced: processor, memory, and identity, UUID, place,
    /// driver and memory of each GPU in whatever order they are listed. Kernel, limits and modes are left out.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        let memory = self.memory.map(|Bytes(bytes)| bytes.div_ceil(FINGERPRINT_MEMORY));
        let mut gpus: Vec<_> =
            self.gpus.iter().map(|gpu| (&gpu.uuid, &gpu.pci, &gpu.identity, &gpu.driver, gpu.memory)).collect();
        gpus.sort();
        let parts = (&self.cpu_model, self.cores, memory, gpus);
        #[expect(clippy::expect_used, reason = "every part is bounded by its type")]
        let bytes = codec::encode(&parts, MAX_FINGERPRINTED).expect("64 GPUs of at most 400 bytes fit");
        Hash(blake3::derive_key("souk/1/hardware-fingerprint", &bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn a100(index: u16) -> Gpu {
        Gpu {
            index,
            identity: GpuIdentity::from_device("NVIDIA A100-SXM4-80GB", 81_920),
            name: Text::clipped("NVIDIA A100-SXM4-80GB"),
            uuid: Some(Text::clipped(&format!("GPU-00000000-0000-0000-0000-00000000000{index}"))),
            pci: Some(Text::clipped("00000000:17:00.0")),
            driver: Some(Text::clipped("550.54.15")),
            mig: Some(false),
            ecc: Some(true),
            power_limit_mw: Some(400_000),
            memory: Some(Bytes(80 << 30)),
        }
    }

    pub(crate) fn machine(gpus: Vec<Gpu>) -> Inventory {
        Inventory {
            cpu_model: Some(Text::clipped("AMD EPYC 7713 64-Core Processor")),
            cores: Some(128),
            memory: Some(Bytes((512 << 30) - 4_096)),
            kernel: Some(Text::clipped("6.1.0-18-amd64")),
            gpus: List::try_from(gpus).unwrap(),
            unusable: List::default(),
        }
    }

    #[test]
    fn this_machine_has_a_processor_memory_a_kernel_and_a_disk() {
        let inventory = Inventory::measure(None);
        assert!(inventory.cores.unwrap() >= 1);
        assert!(inventory.memory.unwrap() > Bytes(64 << 20));
        assert!(inventory.kernel.is_some());
        assert!(inventory.gpus.is_empty() && inventory.unusable.is_empty());
        let here = std::env::current_dir().unwrap();
        assert!(Inventory::disk_free(&here).is_some());
        assert!(Inventory::disk_free(&here.join("not/there/yet")).is_some());
        assert_eq!(inventory.fingerprint(), Inventory::measure(None).fingerprint());
    }

    #[test]
    fn the_fingerprint_is_that_of_the_parts_and_not_of_their_order_or_modes() {
        let before = machine(vec![a100(0), a100(1)]);
        let mut after = machine(vec![a100(1), a100(0)]);
        after.kernel = Some(Text::clipped("6.12.1"));
        after.memory = Some(Bytes((512 << 30) - 5 * 4_096));
        assert_eq!(after.fingerprint(), before.fingerprint());
        let mut capped = a100(0);
        (capped.power_limit_mw, capped.ecc, capped.mig) = (Some(300_000), Some(false), Some(true));
        assert_eq!(machine(vec![capped, a100(1)]).fingerprint(), before.fingerprint());
    }

    #[test]
    fn a_replaced_part_is_another_fingerprint() {
        let before = machine(vec![a100(0), a100(1)]).fingerprint();
        let changes: [fn(&mut Inventory); 6] = [
            |machine| machine.cores = Some(64),
            |machine| machine.cpu_model = None,
            |machine| machine.memory = Some(Bytes(256 << 30)),
            |machine| machine.gpus = List::try_from(vec![a100(0)]).unwrap(),
            |machine| machine.gpus = List::try_from(vec![a100(0), a100(2)]).unwrap(),
            |machine| {
                let newer = Gpu { driver: Some(Text::clipped("570.86.10")), ..a100(1) };
                machine.gpus = List::try_from(vec![a100(0), newer]).unwrap();
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut machine = machine(vec![a100(0), a100(1)]);
            change(&mut machine);
            assert_ne!(machine.fingerprint(), before, "change {number}");
        }
    }

    #[test]
    fn the_largest_inventory_has_a_fingerprint() {
        let wide = |c: char| c.to_string().repeat(200);
        let gpu = |index: u16| Gpu {
            identity: GpuIdentity::from_device(&wide('x'), u64::MAX),
            uuid: Some(Text::clipped(&wide('u'))),
            pci: Some(Text::clipped(&wide('p'))),
            driver: Some(Text::clipped(&wide('d'))),
            ..a100(index)
        };
        let full = machine((0..64).map(gpu).collect());
        assert_ne!(full.fingerprint(), machine(vec![]).fingerprint());
    }
}
