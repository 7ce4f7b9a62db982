//! GPUs: what a renter asks for, what a device is, and when the two match.
//!
//! A GPU's identity is (vendor, family, memory class, form factor, MIG profile), never a string: `A100` is not a
//! prefix match for `A10`, and 24 GB is a class from a table, whatever the driver reports after its reservations.

mod name;
mod request;
mod table;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bounded::{List, Text};
use crate::grammar::{Count, GrammarError, Range, RangeItem};
use crate::units::Bytes;

/// Most families in one request; a longer list says "any" by naming none.
pub const MAX_GPU_FAMILIES: usize = 16;
/// Most GPUs of one task: more than any single machine holds.
pub const MAX_GPUS: u32 = 64;

/// Who makes a GPU. Append-only: the order is the tag on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Someone else; can be reported, not requested.
    Other,
}

/// How a GPU is built into its machine. Append-only: the order is the tag on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GpuForm {
    /// A module on a baseboard with NVLink.
    Sxm,
    /// A PCI Express card.
    Pcie,
    /// A pair of PCI Express cards with an NVLink bridge.
    Nvl,
}

/// The model line, in its canonical spelling: "A100", "RTX 4090".
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuFamily(Text<48>);

/// The memory a card is sold with, in gigabytes: the label, not what the driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemoryClass(pub u16);

/// A slice of a GPU: "1g.5gb".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MigProfile {
    /// Compute slices, 1 to 7.
    pub slices: u8,
    /// Memory of the slice, in gigabytes.
    pub memory: u16,
    /// Whether it has the media extensions ("+me").
    pub media: bool,
}

/// What a GPU is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuIdentity {
    /// Who makes it.
    pub vendor: Vendor,
    /// The model line.
    pub family: GpuFamily,
    /// The memory it is sold with; `None` where the table has no entry for what the device reports.
    pub memory: Option<MemoryClass>,
    /// How it is built in, where known.
    pub form: Option<GpuForm>,
    /// The slice, if it is one.
    pub mig: Option<MigProfile>,
}

/// What GPUs a task needs. What is left out does not matter, except that a slice is granted only to those who name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    /// Who makes it.
    pub vendor: Option<Vendor>,
    /// Any of these model lines; empty for any.
    pub families: List<GpuFamily, MAX_GPU_FAMILIES>,
    /// The memory of each GPU.
    pub memory: Option<Range<MemoryClass>>,
    /// How it is built in.
    pub form: Option<GpuForm>,
    /// Exactly this slice.
    pub mig: Option<MigProfile>,
    /// How many. What is granted is the lower bound.
    pub count: Range<Count>,
}

/// The first thing about a GPU that a request refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuMismatch {
    /// Another maker.
    Vendor,
    /// Another model line.
    Family,
    /// A slice where a whole GPU is asked for, the reverse, or another profile.
    Mig,
    /// Another memory class, or an unknown one.
    Memory,
    /// Another form factor, or an unknown one.
    Form,
}

impl GpuRequest {
    /// The first reason why `gpu` does not match, `None` if it does.
    pub fn mismatch(&self, gpu: &GpuIdentity) -> Option<GpuMismatch> {
        if self.vendor.is_some_and(|vendor| vendor != gpu.vendor) {
            return Some(GpuMismatch::Vendor);
        }
        if !self.families.is_empty() && !self.families.contains(&gpu.family) {
            return Some(GpuMismatch::Family);
        }
        if self.mig != gpu.mig {
            return Some(GpuMismatch::Mig);
        }
        if self.memory.is_some_and(|range| !gpu.memory.is_some_and(|class| range.contains(class))) {
            return Some(GpuMismatch::Memory);
        }
        if self.form.is_some() && self.form != gpu.form {
            return Some(GpuMismatch::Form);
        }
        None
    }

    /// Whether `gpu` is one of those asked for. The count is not looked at.
    pub fn matches(&self, gpu: &GpuIdentity) -> bool {
        self.mismatch(gpu).is_none()
    }

    /// The request for people: "2x A100 80GB".
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.vendor.filter(|_| self.families.is_empty()).map(|vendor| vendor.to_string()));
        if !self.families.is_empty() {
            parts.push(self.family_list("/"));
        }
        parts.extend(self.memory.map(|memory| memory.to_string()));
        parts.extend(self.form.map(|form| form.to_string()));
        parts.extend(self.mig.map(|mig| mig.to_string()));
        if parts.is_empty() {
            parts.push("GPU".to_owned());
        }
        format!("{}x {}", self.count, parts.join(" "))
    }

    fn family_list(&self, separator: &str) -> String {
        self.families.iter().map(GpuFamily::as_str).collect::<Vec<_>>().join(separator)
    }
}

impl fmt::Display for GpuRequest {
    /// In the grammar: "nvidia:A100,H100:80GB:sxm:2".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.vendor.map(|vendor| vendor.to_string()));
        if !self.families.is_empty() {
            parts.push(self.family_list(","));
        }
        parts.extend(self.memory.map(|memory| memory.to_string()));
        parts.extend(self.form.map(|form| form.to_string()));
        parts.extend(self.mig.map(|mig| mig.to_string()));
        if parts.is_empty() || self.count != Range::exactly(Count(1)) {
            parts.push(self.count.to_string());
        }
        f.write_str(&parts.join(":"))
    }
}

impl GpuIdentity {
    /// The identity of a device from what its driver reports: its name and its memory in binary megabytes.
    ///
    /// A device the table does not know keeps its own name and has no memory class.
    pub fn from_device(name: &str, mib: u64) -> Self {
        let read = name::read(name);
        let class = read.row.and_then(|row| row.class_of(mib));
        Self::from_read(&read, class)
    }

    /// The identity of a GPU known by name alone, such as a label of a cluster: "H100_NVLINK_80GB".
    ///
    /// `None` for names that the table does not know. Without memory in the name, the class is that of a family
    /// sold with one size only.
    pub fn from_name(name: &str) -> Option<Self> {
        let read = name::read(name);
        let row = read.row?;
        let class = read.memory.filter(|class| row.classes.contains(class)).or(match row.classes {
            [only] if read.memory.is_none_or(|class| row.host_memory.contains(&class)) => Some(*only),
            _ => None,
        });
        Some(Self::from_read(&read, class))
    }

    fn from_read(read: &name::Read, class: Option<u16>) -> Self {
        let memory = read.mig.map_or(class, |mig| Some(mig.memory)).map(MemoryClass);
        match read.row {
            Some(row) => Self {
                vendor: row.vendor,
                family: GpuFamily::of(row.family),
                memory,
                form: read.form.or_else(|| row.form_of(read.has_hbm)),
                mig: read.mig,
            },
            None => Self {
                vendor: read.vendor.unwrap_or(Vendor::Other),
                family: GpuFamily::of(&read.words),
                memory,
                form: read.form,
                mig: read.mig,
            },
        }
    }
}

impl fmt::Display for GpuIdentity {
    /// "A100 80GB sxm".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.as_str())?;
        if let Some(memory) = self.memory.filter(|_| self.mig.is_none()) {
            write!(f, " {memory}")?;
        }
        if let Some(form) = self.form {
            write!(f, " {form}")?;
        }
        if let Some(mig) = self.mig {
            write!(f, " {mig}")?;
        }
        Ok(())
    }
}

impl GpuFamily {
    fn of(name: &str) -> Self {
        Self(Text::clipped(name))
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Other => "other",
        })
    }
}

impl fmt::Display for GpuForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sxm => "sxm",
            Self::Pcie => "pcie",
            Self::Nvl => "nvl",
        })
    }
}

impl fmt::Display for GpuMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vendor => "another maker",
            Self::Family => "another model",
            Self::Mig => "another slice",
            Self::Memory => "another memory size",
            Self::Form => "another form factor",
        })
    }
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}GB", self.0)
    }
}

impl FromStr for MemoryClass {
    type Err = GrammarError;

    /// Whole GB or GiB; both name the same class, as both are on the boxes of the same cards.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let Bytes(bytes) = text.parse()?;
        let whole = |unit: u64| (bytes.checked_rem(unit) == Some(0)).then(|| bytes.checked_div(unit)).flatten();
        let class = whole(1_000_000_000).or_else(|| whole(1 << 30));
        match class.map(u16::try_from) {
            Some(Ok(class)) => Ok(Self(class)),
            Some(Err(_)) => Err(GrammarError::new(text, 0, "no GPU has so much memory")),
            None => Err(GrammarError::new(text, 0, "GPU memory comes in whole GB").with_hint("e.g. \"24GB\"")),
        }
    }
}

impl RangeItem for MemoryClass {
    const LEAST: Self = Self(1);
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb{}", self.slices, self.memory, if self.media { "+me" } else { "" })
    }
}

#[cfg(test)]
mod tests;
