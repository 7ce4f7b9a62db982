//! What a job needs of a provider and on which terms: the part of a spec that the market sees.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    bounded::{List, Text},
    gpu::GpuRequest,
    units::{Bytes, MilliCpu, Millis, Ppm},
};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        ///
        /// Variants are append-only: their order is their tag on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every variant, in the order of the wire.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word people write.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.word())
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::terms::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::terms::UnknownWord> {
                Self::ALL.iter().copied().find(|v| v.word() == text).ok_or_else(|| $crate::terms::UnknownWord {
                    value: text.chars().take(80).collect(),
                    expected: Self::ALL.iter().map(|v| v.word()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}
pub(crate) use words;

/// A text is none of the words of a closed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is unknown: expected one of {expected}")]
pub struct UnknownWord {
    /// The text as given, cut to 80 characters.
    pub value: String,
    /// The words allowed.
    pub expected: String,
}

words! {
    /// How firm the promise is.
    Tier {
        /// Interruptible, spot.
        Bronze = "bronze",
        /// On demand.
        Silver = "silver",
        /// Reserved, not preemptible.
        Gold = "gold",
    }
}

words! {
    /// When a renter owes for an attempt.
    Pay {
        /// When it holds the result or a checkpoint.
        Delivered = "delivered",
        /// By time, with ticks.
        Metered = "metered",
    }
}

words! {
    /// How a job finds its providers.
    Mode {
        /// A standing ask if its rate fits and the tier is not gold, else an auction.
        Auto = "auto",
        /// Sealed bids.
        Auction = "auction",
        /// Standing asks only.
        Ask = "ask",
    }
}

words! {
    /// Use of the renter's own node.
    Local {
        /// Own free capacity first, the rest on the market.
        First = "first",
        /// Never on the market.
        Only = "only",
        /// Always on the market.
        Never = "never",
    }
}

words! {
    /// How a provider keeps a job apart from its machine. W0 is wasm in a confined process.
    Isolation {
        /// wasm in a confined process.
        W0 = "W0",
        /// Rootless container, no network.
        C1 = "C1",
        /// Container with a user-space kernel.
        C2 = "C2",
        /// Micro virtual machine.
        V1 = "V1",
        /// Exclusive GPU with scrub.
        G1 = "G1",
        /// GPU in a virtual machine.
        G2 = "G2",
    }
}

words! {
    /// What executes the tasks.
    Runtime {
        /// A WASI command.
        Wasm = "wasm",
        /// A container image.
        Oci = "oci",
    }
}

/// How results are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verify {
    /// Not at all.
    None,
    /// The telemetry chain of the run is kept and checked.
    Telemetry,
    /// This share of tasks is run again.
    Spot(Ppm),
    /// Each task runs on so many providers.
    Replicate(u16),
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Telemetry => f.write_str("telemetry"),
            Self::Spot(share) => write!(f, "spot:{share}"),
            Self::Replicate(n) => write!(f, "replicate:{n}"),
        }
    }
}

/// What one slot must have. The grant is the lower bound of each requested range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// What executes the tasks.
    pub runtime: Runtime,
    /// Weakest isolation accepted.
    pub isolation: Isolation,
    /// Processor time, in thousandths of a core.
    pub cpu: MilliCpu,
    /// Memory of the task.
    pub memory: Bytes,
    /// Scratch space and outputs.
    pub disk: Bytes,
    /// GPUs, if any.
    pub gpu: Option<GpuRequest>,
    /// ISO codes, any of which will do; empty means anywhere.
    pub regions: List<Text<16>, 64>,
}

/// The terms of a lease that do not depend on who provides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How firm the promise is.
    pub tier: Tier,
    /// When the renter owes.
    pub pay: Pay,
    /// Whether the provider may preempt.
    pub preemptible: bool,
    /// Warning before preemption.
    pub notice: Millis,
    /// Longest run time of one attempt.
    pub timeout: Millis,
    /// Time a stopping task gets before it is killed.
    pub stop_grace: Millis,
    /// Bytes kept of each of stdout and stderr.
    pub stdout: Bytes,
    /// How long the renter may be away while the job runs.
    pub offline: Millis,
    /// How long results wait to be fetched.
    pub retention: Millis,
    /// How results are checked.
    pub verify: Verify,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_unknown_ones_name_the_choice() {
        for tier in Tier::ALL {
            assert_eq!(tier.word().parse::<Tier>().unwrap(), *tier);
        }
        let error = "platinum".parse::<Tier>().unwrap_err();
        assert_eq!(error.to_string(), "\"platinum\" is unknown: expected one of bronze, silver, gold");
    }
}
