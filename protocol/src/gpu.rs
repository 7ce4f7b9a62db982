//! Interim: replaced by the owner of this file.
use serde::{Deserialize, Serialize};
/// Interim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    /// Interim.
    pub name: String,
}
/// Interim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuIdentity {
    /// Interim.
    pub name: String,
}
