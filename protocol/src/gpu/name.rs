//! Reading a GPU's name: from a driver, a cluster's label or a person.
//!
//! Case, spaces, `_`, `-` and makers' words do not matter. Memory, form and slice are parts of a name, not of the family.

use super::table::{self, Row};
use super::{GpuForm, MigProfile, Vendor};

/// What a name says.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// The family's row, if the table has one.
    pub(super) row: Option<&'static Row>,
    /// The words left after memory, form and makers' names, for a family without a row.
    pub(super) words: String,
    pub(super) vendor: Option<Vendor>,
    /// Memory in the name, in GB.
    pub(super) memory: Option<u16>,
    pub(super) form: Option<GpuForm>,
    pub(super) mig: Option<MigProfile>,
    /// Whether the name speaks of stacked memory: the one difference between the names of some SXM and PCIe cards.
    pub(super) has_hbm: bool,
}

/// Words that say nothing about the family.
const NOISE: &[&str] = &[
    "NVIDIA",
    "GEFORCE",
    "TESLA",
    "GENERATION",
    "AMD",
    "ATI",
    "RADEON",
    "INSTINCT",
    "INTEL",
    "CORPORATION",
    "GPU",
    "GRAPHICS",
    "MIG",
    "OAM",
    "VF",
    "(R)",
    "(TM)",
];

pub(super) fn read(name: &str) -> Read {
    let mut read =
        Read { row: None, words: String::new(), vendor: None, memory: None, form: None, mig: None, has_hbm: false };
    let upper = name.to_ascii_uppercase().replace("(R)", " ").replace("(TM)", " ");
    let mut words = Vec::new();
    for word in upper.split([' ', '_', '-', '/', '\t']).filter(|word| !word.is_empty()) {
        read.vendor = read.vendor.or(match word {
            "NVIDIA" | "GEFORCE" | "TESLA" | "QUADRO" => Some(Vendor::Nvidia),
            "AMD" | "RADEON" | "INSTINCT" => Some(Vendor::Amd),
            "INTEL" => Some(Vendor::Intel),
            _ => None,
        });
        if let Some(form) = form(word) {
            read.form = Some(form);
        } else if let Some(profile) = mig(word) {
            read.mig = Some(profile);
        } else if let Some(memory) = memory(word).filter(|_| !words.is_empty()) {
            read.memory = Some(memory);
        } else if matches!(word, "HBM2" | "HBM2E" | "HBM3" | "HBM3E") {
            read.has_hbm = true;
        } else if !NOISE.contains(&word) {
            words.push(word);
        }
    }
    read.words = words.join(" ");
    let mut compact = words.concat();
    // Makers' words may also be glued to the name: "GeForceRTX4090".
    while let Some(rest) = NOISE.iter().find_map(|noise| compact.strip_prefix(noise)) {
        compact = rest.to_owned();
    }
    read.row = table::find(&compact);
    read
}

/// A name as it is compared: upper case, without separators.
pub(super) fn compact(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).map(|c| c.to_ascii_uppercase()).collect()
}

fn form(word: &str) -> Option<GpuForm> {
    match word {
        "PCIE" => Some(GpuForm::Pcie),
        "NVL" => Some(GpuForm::Nvl),
        // Labels say NVLINK of baseboard modules; the bridged cards are called NVL.
        "SXM" | "SXM2" | "SXM3" | "SXM4" | "SXM5" | "SXM6" | "NVLINK" => Some(GpuForm::Sxm),
        _ => None,
    }
}

fn memory(word: &str) -> Option<u16> {
    let digits = word.strip_suffix("GIB").or_else(|| word.strip_suffix("GB")).or_else(|| word.strip_suffix('G'))?;
    plain_number(digits)
}

/// `1g.5gb`, optionally with `+me`, in upper case.
pub(super) fn mig(word: &str) -> Option<MigProfile> {
    let (slices, rest) = word.split_once("G.")?;
    let (rest, media) = rest.strip_suffix("+ME").map_or((rest, false), |rest| (rest, true));
    let memory = plain_number(rest.strip_suffix("GB")?).filter(|memory| *memory > 0)?;
    let slices = u8::try_from(plain_number(slices)?).ok().filter(|slices| (1..=7).contains(slices))?;
    Some(MigProfile { slices, memory, media })
}

/// Digits only: `parse` alone would admit a sign.
fn plain_number(digits: &str) -> Option<u16> {
    digits.chars().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}
