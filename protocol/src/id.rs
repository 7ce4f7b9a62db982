//! Names of things: fixed-size byte strings that cannot be mixed up.
//!
//! On the wire an id is its bytes. To people it is lower-case base32 without padding; [`short`](NodeId::short)
//! gives the first characters, enough to tell neighbours apart in a table.

use core::{fmt, str::FromStr};

use data_encoding::BASE32_NOPAD_NOCASE;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Characters shown by `short()`.
const SHORT_LEN: usize = 8;

/// A text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {kind}: expected {expected} base32 characters")]
pub struct IdError {
    /// What was expected, for example `job id`.
    pub kind: &'static str,
    /// The text as given, cut to 80 characters.
    pub value: String,
    /// Length of a well-formed text, in characters.
    pub expected: usize,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// The first characters of the text form, for tables and logs.
            #[must_use]
            pub fn short(&self) -> String {
                let mut text = self.to_string();
                text.truncate(SHORT_LEN);
                text
            }

            /// The bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&BASE32_NOPAD_NOCASE.encode(&self.0).to_ascii_lowercase())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let bad = || IdError {
                    kind: $kind,
                    value: text.chars().take(80).collect(),
                    expected: BASE32_NOPAD_NOCASE.encode_len($len),
                };
                let bytes = BASE32_NOPAD_NOCASE.decode(text.as_bytes()).map_err(|_| bad())?;
                bytes.try_into().map(Self).map_err(|_| bad())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
                } else {
                    Ok(Self(<[u8; $len]>::deserialize(deserializer)?))
                }
            }
        }
    };
}

id!(
    /// A node: its ed25519 public key.
    NodeId, 32, "node id"
);
id!(
    /// BLAKE3 of some bytes: a file, a module, a manifest.
    Hash, 32, "hash"
);
id!(
    /// A job: BLAKE3 of (renter, spec hash, nonce), so the same file twice is two jobs.
    JobId, 32, "job id"
);
id!(
    /// A network: BLAKE3 of (name, nonce, root keys, threshold).
    NetworkId, 32, "network id"
);
id!(
    /// A lease: 16 random bytes chosen by the renter.
    LeaseId, 16, "lease id"
);

impl Hash {
    /// BLAKE3 of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl JobId {
    /// The id of the job that `renter` makes of the spec with this hash; `nonce` is chosen by the client, so
    /// that a repeated submission is the same job.
    #[must_use]
    pub fn new(renter: &NodeId, spec: &Hash, nonce: &[u8; 16]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("souk/1/job-id");
        hasher.update(&renter.0);
        hasher.update(&spec.0);
        hasher.update(nonce);
        Self(*hasher.finalize().as_bytes())
    }
}

impl NetworkId {
    /// Eight hexadecimal digits of the id, used in protocol names: `/souk/<net8>/trade/1`.
    #[must_use]
    pub fn net8(&self) -> String {
        self.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// One execution of one task under one lease: the fence of DESIGN section 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The lease it runs under.
    pub lease: LeaseId,
    /// Index of the task in its job.
    pub task: u32,
    /// Replica of the task, 0 for the first.
    pub replica: u16,
    /// Number of the attempt at this task and replica, from 1, over all leases.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}#{}", self.lease.short(), self.task, self.replica, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_in_either_case() {
        let id = NodeId([7; 32]);
        let text = id.to_string();
        assert_eq!(text.len(), 52);
        assert_eq!(text.parse::<NodeId>().unwrap(), id);
        assert_eq!(text.to_ascii_uppercase().parse::<NodeId>().unwrap(), id);
    }

    #[test]
    fn a_text_of_another_length_is_refused_with_the_expected_length() {
        let error = "abc".parse::<LeaseId>().unwrap_err();
        assert_eq!(error.to_string(), "\"abc\" is not a lease id: expected 26 base32 characters");
    }

    #[test]
    fn another_nonce_is_another_job() {
        let (renter, spec) = (NodeId([1; 32]), Hash([2; 32]));
        assert_ne!(JobId::new(&renter, &spec, &[0; 16]), JobId::new(&renter, &spec, &[1; 16]));
        assert_eq!(JobId::new(&renter, &spec, &[0; 16]), JobId::new(&renter, &spec, &[0; 16]));
    }
}
