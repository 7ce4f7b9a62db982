//! The table of GPU families: canonical name, maker, sizes of memory they are sold with, form factor, other names.

use super::name::compact;
use super::{GpuForm, Vendor};

/// One family.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) family: &'static str,
    pub(super) vendor: Vendor,
    /// Memory classes, in GB, ascending.
    pub(super) classes: &'static [u16],
    /// The form of every member, if there is only one.
    pub(super) form: Option<GpuForm>,
    /// Other names, compact.
    pub(super) aliases: &'static [&'static str],
    /// Sizes in the names of superchips that are the processor's memory, not the GPU's.
    pub(super) host_memory: &'static [u16],
}

impl Row {
    /// The class of a device that reports `mib` binary megabytes.
    ///
    /// A card of n GB has n GiB at most. ECC takes a sixteenth, drivers and firmware a little more, and some
    /// makers count decimal gigabytes: never below 925 MiB for each GB.
    pub(super) fn class_of(&self, mib: u64) -> Option<u16> {
        self.classes.iter().copied().find(|class| {
            let gb = u64::from(*class);
            (gb.saturating_mul(925)..=gb.saturating_mul(1_034)).contains(&mib)
        })
    }

    /// The form of a device whose name does not say it.
    pub(super) fn form_of(&self, has_hbm: bool) -> Option<GpuForm> {
        // "NVIDIA H100 80GB HBM3" is the SXM module; the cards say PCIe or NVL.
        if self.form.is_none() && has_hbm && matches!(self.family, "H100" | "H800" | "H20") {
            return Some(GpuForm::Sxm);
        }
        self.form
    }
}

/// The family of a compact name.
pub(super) fn find(compact_name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.aliases.contains(&compact_name) || compact(row.family) == compact_name)
}

/// Names that people use for more than one family, with what to write instead.
pub(super) const AMBIGUOUS: &[(&str, &str)] = &[
    ("RTX6000", "\"Quadro RTX 6000\", \"RTX A6000\", \"RTX 6000 Ada\" or \"RTX PRO 6000\""),
    ("RTX5000", "\"Quadro RTX 5000\", \"RTX A5000\", \"RTX 5000 Ada\" or \"RTX PRO 5000\""),
    ("RTX4000", "\"Quadro RTX 4000\", \"RTX A4000\", \"RTX 4000 Ada\" or \"RTX PRO 4000\""),
    ("RTX4500", "\"RTX A4500\", \"RTX 4500 Ada\" or \"RTX PRO 4500\""),
    ("RTX2000", "\"RTX A2000\" or \"RTX 2000 Ada\""),
];

/// Canonical names, for suggestions.
pub(super) fn families() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.family)
}

/// Families whose name holds `digits` as a model number: "4090" is in "RTX 4090".
pub(super) fn with_model_number(digits: &str) -> impl Iterator<Item = &'static str> {
    families().filter(move |family| {
        digits.len() >= 3 && family.split(|c: char| !c.is_ascii_digit()).any(|number| number == digits)
    })
}

const fn row(
    family: &'static str,
    vendor: Vendor,
    form: Option<GpuForm>,
    classes: &'static [u16],
    aliases: &'static [&'static str],
) -> Row {
    Row { family, vendor, classes, form, aliases, host_memory: &[] }
}

const fn superchip(family: &'static str, classes: &'static [u16], host_memory: &'static [u16]) -> Row {
    Row { family, vendor: Vendor::Nvidia, classes, form: None, aliases: &[], host_memory }
}

/// NVIDIA, PCI Express.
const fn card(family: &'static str, classes: &'static [u16], aliases: &'static [&'static str]) -> Row {
    row(family, Vendor::Nvidia, Some(GpuForm::Pcie), classes, aliases)
}

/// NVIDIA, as module or card.
const fn module(family: &'static str, classes: &'static [u16], aliases: &'static [&'static str]) -> Row {
    row(family, Vendor::Nvidia, None, classes, aliases)
}

const fn amd(family: &'static str, classes: &'static [u16], aliases: &'static [&'static str]) -> Row {
    row(family, Vendor::Amd, Some(GpuForm::Pcie), classes, aliases)
}

/// AMD modules: neither SXM nor a card.
const fn amd_module(family: &'static str, classes: &'static [u16]) -> Row {
    row(family, Vendor::Amd, None, classes, &[])
}

const fn intel(family: &'static str, classes: &'static [u16], aliases: &'static [&'static str]) -> Row {
    row(family, Vendor::Intel, Some(GpuForm::Pcie), classes, aliases)
}

const SXM: Option<GpuForm> = Some(GpuForm::Sxm);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Data centre, NVIDIA.
    module("A100", &[40, 64, 80], &["A100PG509200", "A100PG506230"]),
    module("A800", &[40, 80], &[]),
    module("H100", &[64, 80, 94], &[]),
    module("H800", &[80, 94], &[]),
    module("H20", &[96, 141], &["H203E"]),
    row("H200", Vendor::Nvidia, SXM, &[141], &[]),
    row("B100", Vendor::Nvidia, SXM, &[180], &[]),
    row("B200", Vendor::Nvidia, SXM, &[180], &[]),
    row("B300", Vendor::Nvidia, SXM, &[288], &["B300AC"]),
    superchip("GH200", &[96, 144], &[480, 624]),
    superchip("GB200", &[186], &[480]),
    superchip("GB300", &[288], &[480]),
    module("V100", &[16, 32], &["V100N", "V100DGXS", "V100FHHL"]),
    card("V100S", &[32], &[]),
    module("P100", &[12, 16], &[]),
    card("A2", &[16], &[]),
    card("A10", &[24], &[]),
    card("A10G", &[24], &[]),
    card("A10M", &[24], &[]),
    card("A16", &[16], &[]),
    card("A30", &[24], &[]),
    card("A40", &[48], &[]),
    card("L2", &[24], &[]),
    card("L4", &[24], &[]),
    card("L20", &[48], &[]),
    card("L40", &[48], &[]),
    card("L40G", &[24], &[]),
    card("L40S", &[48], &[]),
    card("T4", &[16], &[]),
    card("T4G", &[16], &[]),
    card("P4", &[8], &[]),
    card("P40", &[24], &[]),
    card("K80", &[12], &[]),
    card("M40", &[12, 24], &[]),
    card("M60", &[8], &[]),
    // Workstation, NVIDIA.
    card("RTX PRO 6000", &[96], &[
        "RTXPRO6000BLACKWELL", "RTXPRO6000BLACKWELLSERVEREDITION", "RTXPRO6000BLACKWELLWORKSTATIONEDITION",
        "RTXPRO6000BLACKWELLMAXQWORKSTATIONEDITION",
    ]),
    card("RTX PRO 5000", &[48, 72], &["RTXPRO5000BLACKWELL"]),
    card("RTX PRO 4500", &[32], &["RTXPRO4500BLACKWELL"]),
    card("RTX PRO 4000", &[24], &["RTXPRO4000BLACKWELL"]),
    card("RTX 6000 Ada", &[48], &["6000ADA"]),
    card("RTX 5880 Ada", &[48], &["5880ADA"]),
    card("RTX 5000 Ada", &[32], &["5000ADA"]),
    card("RTX 4500 Ada", &[24], &["4500ADA"]),
    card("RTX 4000 Ada", &[20], &["4000ADA"]),
    card("RTX 4000 SFF Ada", &[20], &[]),
    card("RTX 2000 Ada", &[16], &["2000ADA"]),
    card("RTX A6000", &[48], &["A6000"]),
    card("RTX A5500", &[24], &["A5500"]),
    card("RTX A5000", &[24], &["A5000"]),
    card("RTX A4500", &[20], &["A4500"]),
    card("RTX A4000", &[16], &["A4000"]),
    card("RTX A2000", &[6, 12], &["A2000"]),
    card("Quadro RTX 8000", &[48], &["RTX8000"]),
    card("Quadro RTX 6000", &[24], &[]),
    card("Quadro RTX 5000", &[16], &[]),
    card("Quadro RTX 4000", &[8], &[]),
    card("TITAN RTX", &[24], &[]),
    card("TITAN V", &[12], &[]),
    card("TITAN Xp", &[12], &[]),
    // GeForce.
    card("RTX 5090", &[32], &[]),
    card("RTX 5090 D", &[32], &[]),
    card("RTX 5080", &[16], &[]),
    card("RTX 5070 Ti", &[16], &[]),
    card("RTX 5070", &[12], &[]),
    card("RTX 5060 Ti", &[8, 16], &[]),
    card("RTX 5060", &[8], &[]),
    card("RTX 5050", &[8], &[]),
    card("RTX 4090", &[24], &[]),
    card("RTX 4090 D", &[24], &[]),
    card("RTX 4090 Laptop", &[16], &[]),
    card("RTX 4080 SUPER", &[16], &["RTX4080S"]),
    card("RTX 4080", &[16], &[]),
    card("RTX 4080 Laptop", &[12], &[]),
    card("RTX 4070 Ti SUPER", &[16], &["RTX4070TIS"]),
    card("RTX 4070 Ti", &[12], &[]),
    card("RTX 4070 SUPER", &[12], &["RTX4070S"]),
    card("RTX 4070", &[12], &[]),
    card("RTX 4070 Laptop", &[8], &[]),
    card("RTX 4060 Ti", &[8, 16], &[]),
    card("RTX 4060", &[8], &[]),
    card("RTX 4060 Laptop", &[8], &[]),
    card("RTX 4050 Laptop", &[6], &[]),
    card("RTX 3090 Ti", &[24], &[]),
    card("RTX 3090", &[24], &[]),
    card("RTX 3080 Ti", &[12], &[]),
    card("RTX 3080", &[10, 12], &[]),
    card("RTX 3070 Ti", &[8], &[]),
    card("RTX 3070", &[8], &[]),
    card("RTX 3060 Ti", &[8], &[]),
    card("RTX 3060", &[8, 12], &[]),
    card("RTX 3050", &[4, 6, 8], &[]),
    card("RTX 2080 Ti", &[11], &[]),
    card("RTX 2080 SUPER", &[8], &[]),
    card("RTX 2080", &[8], &[]),
    card("RTX 2070 SUPER", &[8], &[]),
    card("RTX 2070", &[8], &[]),
    card("RTX 2060 SUPER", &[8], &[]),
    card("RTX 2060", &[6, 12], &[]),
    card("GTX 1660 Ti", &[6], &[]),
    card("GTX 1660 SUPER", &[6], &[]),
    card("GTX 1660", &[6], &[]),
    card("GTX 1650", &[4], &[]),
    card("GTX 1080 Ti", &[11], &[]),
    card("GTX 1080", &[8], &[]),
    card("GTX 1070 Ti", &[8], &[]),
    card("GTX 1070", &[8], &[]),
    card("GTX 1060", &[3, 6], &[]),
    // AMD.
    amd_module("MI355X", &[288]),
    amd_module("MI350X", &[288]),
    amd_module("MI325X", &[256]),
    amd_module("MI300X", &[192]),
    amd_module("MI300A", &[128]),
    amd_module("MI250X", &[64, 128]),
    amd_module("MI250", &[64, 128]),
    amd("MI210", &[64], &[]),
    amd("MI100", &[32], &[]),
    amd("MI60", &[32], &[]),
    amd("MI50", &[16, 32], &[]),
    amd("PRO W7900", &[48], &["W7900"]),
    amd("PRO W7800", &[32, 48], &["W7800"]),
    amd("PRO W6800", &[32], &["W6800"]),
    amd("RX 9070 XT", &[16], &["9070XT"]),
    amd("RX 9070", &[16], &[]),
    amd("RX 9060 XT", &[8, 16], &["9060XT"]),
    amd("RX 7900 XTX", &[24], &["7900XTX"]),
    amd("RX 7900 XT", &[20], &["7900XT"]),
    amd("RX 7900 GRE", &[16], &["7900GRE"]),
    amd("RX 7800 XT", &[16], &["7800XT"]),
    amd("RX 7700 XT", &[12], &["7700XT"]),
    amd("RX 7600 XT", &[16], &["7600XT"]),
    amd("RX 7600", &[8], &[]),
    amd("RX 6950 XT", &[16], &["6950XT"]),
    amd("RX 6900 XT", &[16], &["6900XT"]),
    amd("RX 6800 XT", &[16], &["6800XT"]),
    amd("RX 6800", &[16], &[]),
    // Intel.
    intel("Max 1550", &[128], &["DATACENTERMAX1550"]),
    intel("Max 1100", &[48], &["DATACENTERMAX1100"]),
    intel("Flex 170", &[16], &["DATACENTERFLEX170"]),
    intel("Arc A770", &[8, 16], &["A770"]),
    intel("Arc A750", &[8], &["A750"]),
    intel("Arc B580", &[12], &["B580"]),
    intel("Arc B570", &[10], &["B570"]),
];

#[cfg(test)]
pub(super) const ALL: &[Row] = ROWS;
