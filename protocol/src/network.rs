//! The network file: what makes nodes one network, and the parameters every node of it enforces.

use serde::{Deserialize, Serialize};

use crate::{id::NetworkId, money::Credits, units::Millis};

/// Largest network file, in bytes.
pub const MAX_NETWORK_FILE: usize = 256 * 1024;

/// A parsed network file. Its id depends on name, nonce, root keys and threshold alone, so that bootstrap peers
/// and parameters may change without splitting the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFile {
    /// Name, for people.
    pub name: String,
    /// 16 random bytes that tell two networks of one name apart.
    pub nonce: [u8; 16],
    /// Whether unrated peers may serve every tier (demo, LAN).
    pub open: bool,
    /// Addresses of bootstrap peers, each with `/p2p/`.
    pub bootstrap: Vec<String>,
    /// Governance keys, `ed25519:` and a node id.
    pub keys: Vec<String>,
    /// How many of the keys must sign a change.
    pub threshold: u16,
    /// The rules.
    pub params: Params,
}

/// Rules that every node of a network enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Time unit of witnesses and parameters.
    pub period: Millis,
    /// Longest wait for bids.
    pub bid_window_max: Millis,
    /// Most providers invited to bid in one round: enough for competition, few enough for one burst of messages.
    pub invites: u16,
    /// How long a silent party is waited for.
    pub lease_grace: Millis,
    /// After so long a silence a task may get a second attempt elsewhere.
    pub unknown_after: Millis,
    /// Largest difference of clocks.
    pub clock_skew: Millis,
    /// Credit limits.
    pub credit: CreditLimits,
}

/// How much may be owed to a node by keys it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditLimits {
    /// By one stranger.
    pub stranger: Credits,
    /// By all strangers together.
    pub strangers: Credits,
    /// After so long a debt leaves the strangers' sum; its key stays refused until discharged.
    pub write_off: Millis,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period: Millis(3_600_000),
            bid_window_max: Millis(30_000),
            invites: 16,
            lease_grace: Millis(60_000),
            unknown_after: Millis(15_000),
            clock_skew: Millis(2_000),
            credit: CreditLimits {
                stranger: Credits(50_000),
                strangers: Credits(1_000_000),
                write_off: Millis(30 * 24 * 3_600_000),
            },
        }
    }
}

/// A network file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFileError {
    /// Not TOML, an unknown or missing field, a wrong type.
    #[error("{0}")]
    Toml(String),
    /// A field's value makes no sense.
    #[error("{field} = {value:?}: {problem}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    version: u32,
    name: String,
    nonce: String,
    #[serde(default)]
    open: bool,
    #[serde(default)]
    bootstrap: Vec<String>,
    governance: RawGovernance,
    #[serde(default)]
    params: RawParams,
    #[serde(default)]
    slashing: toml::Table,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGovernance {
    keys: Vec<String>,
    threshold: u16,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bid_window_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invites: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_grace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_skew: Option<String>,
    #[serde(default)]
    credit: RawCredit,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCredit {
    #[serde(skip_serializing_if = "Option::is_none")]
    stranger: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strangers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_off: Option<String>,
}

fn field<T: core::str::FromStr<Err: core::fmt::Display>>(
    name: &'static str,
    text: Option<String>,
    default: T,
) -> Result<T, NetworkFileError> {
    let Some(text) = text else { return Ok(default) };
    text.parse().map_err(|e: T::Err| NetworkFileError::Field {
        field: name,
        value: text.clone(),
        problem: e.to_string(),
    })
}

impl NetworkFile {
    /// Reads a network file.
    ///
    /// # Errors
    /// [`NetworkFileError`] names the field, its value and what is wrong.
    pub fn parse(text: &str) -> Result<Self, NetworkFileError> {
        if text.len() > MAX_NETWORK_FILE {
            return Err(NetworkFileError::Toml(format!("larger than {MAX_NETWORK_FILE} bytes")));
        }
        let raw: RawFile =
            toml::from_str(text).map_err(|e| NetworkFileError::Toml(e.to_string().trim_end().to_owned()))?;
        let bad = |field, value: &str, problem: &str| NetworkFileError::Field {
            field,
            value: value.to_owned(),
            problem: problem.to_owned(),
        };
        if raw.version != 1 {
            return Err(bad("version", &raw.version.to_string(), "this souk reads version 1"));
        }
        let name_ok = raw.name.len() <= 63
            && raw.name.starts_with(|c: char| c.is_ascii_lowercase())
            && raw.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !name_ok {
            return Err(bad("name", &raw.name, "use 1 to 63 of a-z, 0-9 and -, starting with a letter"));
        }
        let nonce = data_encoding::HEXLOWER_PERMISSIVE
            .decode(raw.nonce.as_bytes())
            .ok()
            .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
            .ok_or_else(|| bad("nonce", &raw.nonce, "expected 32 hexadecimal digits"))?;
        if usize::from(raw.governance.threshold) > raw.governance.keys.len() || raw.governance.threshold == 0 {
            let value = raw.governance.threshold.to_string();
            return Err(bad("governance.threshold", &value, "expected 1 to the number of keys"));
        }
        if !raw.slashing.is_empty() {
            return Err(bad("slashing", "{..}", "not available yet: leave it out"));
        }
        let d = Params::default();
        let credit = raw.params.credit;
        let params = Params {
            period: field("params.period", raw.params.period, d.period)?,
            bid_window_max: field("params.bid_window_max", raw.params.bid_window_max, d.bid_window_max)?,
            invites: match raw.params.invites {
                Some(0) => return Err(bad("params.invites", "0", "somebody has to be asked: 1 or more")),
                given => given.unwrap_or(d.invites),
            },
            lease_grace: field("params.lease_grace", raw.params.lease_grace, d.lease_grace)?,
            unknown_after: field("params.unknown_after", raw.params.unknown_after, d.unknown_after)?,
            clock_skew: field("params.clock_skew", raw.params.clock_skew, d.clock_skew)?,
            credit: CreditLimits {
                stranger: field("params.credit.stranger", credit.stranger, d.credit.stranger)?,
                strangers: field("params.credit.strangers", credit.strangers, d.credit.strangers)?,
                write_off: field("params.credit.write_off", credit.write_off, d.credit.write_off)?,
            },
        };
        Ok(Self {
            name: raw.name,
            nonce,
            open: raw.open,
            bootstrap: raw.bootstrap,
            keys: raw.governance.keys,
            threshold: raw.governance.threshold,
            params,
        })
    }

    /// The file's text, with every parameter written out.
    ///
    /// # Errors
    /// [`NetworkFileError::Toml`] if it cannot be written, which no valid value causes.
    pub fn to_toml(&self) -> Result<String, NetworkFileError> {
        let p = self.params;
        let raw = RawFile {
            version: 1,
            name: self.name.clone(),
            nonce: data_encoding::HEXLOWER.encode(&self.nonce),
            open: self.open,
            bootstrap: self.bootstrap.clone(),
            governance: RawGovernance { keys: self.keys.clone(), threshold: self.threshold },
            params: RawParams {
                period: Some(p.period.to_string()),
                bid_window_max: Some(p.bid_window_max.to_string()),
                invites: Some(p.invites),
                lease_grace: Some(p.lease_grace.to_string()),
                unknown_after: Some(p.unknown_after.to_string()),
                clock_skew: Some(p.clock_skew.to_string()),
                credit: RawCredit {
                    stranger: Some(p.credit.stranger.to_string()),
                    strangers: Some(p.credit.strangers.to_string()),
                    write_off: Some(p.credit.write_off.to_string()),
                },
            },
            slashing: toml::Table::new(),
        };
        let mut text = toml::to_string(&raw).map_err(|e| NetworkFileError::Toml(e.to_string()))?;
        text = text.replace("\n[slashing]\n", "");
        Ok(text)
    }

    /// The network's id: BLAKE3 of name, nonce, root keys and threshold.
    #[must_use]
    pub fn id(&self) -> NetworkId {
        let mut hasher = blake3::Hasher::new_derive_key("souk/1/network-id");
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(self.name.as_bytes());
        part(&self.nonce);
        for key in &self.keys {
            part(key.as_bytes());
        }
        part(&self.threshold.to_le_bytes());
        NetworkId(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> NetworkFile {
        NetworkFile {
            name: "lab".to_owned(),
            nonce: [7; 16],
            open: true,
            bootstrap: vec!["/ip4/127.0.0.1/udp/4477/quic-v1/p2p/12D3".to_owned()],
            keys: vec!["ed25519:abc".to_owned()],
            threshold: 1,
            params: Params::default(),
        }
    }

    #[test]
    fn a_file_reads_back_what_it_wrote() {
        let text = lab().to_toml().unwrap();
        assert_eq!(NetworkFile::parse(&text).unwrap(), lab(), "{text}");
    }

    #[test]
    fn parameters_and_bootstrap_do_not_change_the_id_but_the_name_does() {
        let mut other = lab();
        other.params.lease_grace = Millis(1);
        other.bootstrap.clear();
        assert_eq!(other.id(), lab().id());
        other.name = "lab2".to_owned();
        assert_ne!(other.id(), lab().id());
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        let text = lab().to_toml().unwrap().replace("lease_grace = \"1m\"", "lease_grace = \"60\"");
        let error = NetworkFile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("params.lease_grace = \"60\""), "{error}");
        let text = lab().to_toml().unwrap().replace("invites = 16", "invites = 0");
        let error = NetworkFile::parse(&text).unwrap_err().to_string();
        assert_eq!(error, "params.invites = \"0\": somebody has to be asked: 1 or more");
        let error = NetworkFile::parse(&lab().to_toml().unwrap().replace("open", "opne")).unwrap_err().to_string();
        assert!(error.contains("opne"), "{error}");
    }
}
