//! Bytes to values and back: the only file that names the serialisation crate.
//!
//! Fixed-width little-endian integers, a size limit before anything is allocated, no trailing bytes. A form with
//! variable-width integers would let two byte strings mean one value. `wincode` writes the same bytes and can
//! take over; golden bytes in the tests of each document hold it to that.

use bincode::Options as _;
use serde::{Serialize, de::DeserializeOwned};

/// Bytes are not a value, or a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The input is longer than its type may be; nothing was read of it.
    #[error("{len} bytes are over the limit of {max}")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The bytes are malformed: truncated, trailing bytes, a bad tag, bad UTF-8, a list too long.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The bytes decode, but are not what the value encodes to.
    #[error("not in canonical form")]
    NotCanonical,
}

fn options(max: usize) -> impl bincode::Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .with_limit(max as u64)
        .reject_trailing_bytes()
}

/// Encodes `value` into at most `max` bytes.
///
/// # Errors
/// [`CodecError::Malformed`] if it does not fit.
pub fn encode<T: Serialize>(value: &T, max: usize) -> Result<Vec<u8>, CodecError> {
    options(max).serialize(value).map_err(|e| CodecError::Malformed(e.to_string()))
}

/// Decodes all of `bytes`, which must be at most `max` long.
///
/// # Errors
/// If the bytes are too long, malformed or followed by others.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CodecError> {
    if bytes.len() > max {
        return Err(CodecError::TooLong { len: bytes.len(), max });
    }
    options(max).deserialize(bytes).map_err(|e| CodecError::Malformed(e.to_string()))
}

/// Decodes `bytes` and checks that the value encodes to the same bytes again.
///
/// # Errors
/// As [`decode`], and [`CodecError::NotCanonical`].
pub fn decode_canonical<T: Serialize + DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CodecError> {
    let value = decode(bytes, max)?;
    if encode(&value, max)? == bytes { Ok(value) } else { Err(CodecError::NotCanonical) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_fixed_width_and_trailing_bytes_are_refused() {
        assert_eq!(encode(&1u32, 8).unwrap(), [1, 0, 0, 0]);
        assert!(decode::<u32>(&[1, 0, 0, 0, 0], 8).is_err());
        assert_eq!(decode::<u32>(&[0; 9], 8), Err(CodecError::TooLong { len: 9, max: 8 }));
        assert!(decode::<bool>(&[2], 8).is_err());
        assert!(decode::<Option<u8>>(&[2, 0], 8).is_err());
    }

    #[test]
    fn a_value_over_the_limit_is_not_written() {
        assert!(encode(&vec![0u8; 100], 50).is_err());
    }
}
