//! Telling a measurement from a driver's way of saying "I do not know".
//!
//! GPU tools mark what a device cannot report with huge numbers: NVML with all bits set, DCGM with the sixteen values
//! below the largest signed integer (`9223372036854775794` is its "not supported"). Taken at face value they are a
//! temperature alarm or, worse, an attested fact.

use souk_protocol::Text;

/// From here on, 64-bit values are marks: DCGM's smallest. No device has eight exabytes of anything.
const BLANK_U64: u64 = 0x7fff_ffff_ffff_fff0;
/// From here on, 32-bit values are marks: DCGM's smallest. No device draws two megawatts.
const BLANK_U32: u32 = 0x7fff_fff0;
/// Texts that stand for "unknown", in lower case and without brackets.
const BLANK_TEXTS: [&str; 8] =
    ["", "n/a", "null", "not found", "not supported", "not perm", "not available", "unknown error"];

/// The value, unless it is a mark for "unknown".
pub(crate) fn known_u64(value: u64) -> Option<u64> {
    (value < BLANK_U64).then_some(value)
}

/// The value, unless it is a mark for "unknown".
pub(crate) fn known_u32(value: u32) -> Option<u32> {
    (value < BLANK_U32).then_some(value)
}

/// The text on one line, unless it is a mark for "unknown": `N/A`, `[Not Supported]`, `<<<NULL>>>`.
pub(crate) fn known_text<const N: usize>(text: &str) -> Option<Text<N>> {
    let bare = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '[' | ']' | '<' | '>'));
    if BLANK_TEXTS.contains(&bare.to_ascii_lowercase().as_str()) { None } else { Some(one_line(text.trim())) }
}

/// A text on one line without control characters: a driver's or a peer's word must not draw on a terminal.
pub(crate) fn one_line<const N: usize>(text: &str) -> Text<N> {
    Text::clipped(&text.replace(['\n', '\r', '\t'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case U14: a blank value of a GPU tool is absent, neither an alert nor a fact.
    #[test]
    fn marks_for_unknown_are_no_values() {
        for mark in [9_223_372_036_854_775_794, 9_223_372_036_854_775_792, i64::MAX as u64, u64::MAX, u64::MAX - 1] {
            assert_eq!(known_u64(mark), None, "{mark}");
        }
        for mark in [0x7fff_fff0, 0x7fff_fff2, i32::MAX as u32, u32::MAX] {
            assert_eq!(known_u32(mark), None, "{mark}");
        }
        for mark in ["", "  ", "N/A", "[N/A]", "[Not Supported]", "<<<NULL>>>", "<<<NOT FOUND>>>", "[Unknown Error]"] {
            assert_eq!(known_text::<40>(mark), None, "{mark}");
        }
    }

    #[test]
    fn real_values_are_kept() {
        assert_eq!(known_u64(0), Some(0));
        assert_eq!(known_u64(85_899_345_920), Some(85_899_345_920));
        assert_eq!(known_u32(700_000), Some(700_000));
        assert_eq!(known_text::<40>(" NVIDIA A100\n").as_deref(), Some("NVIDIA A100"));
        assert_eq!(known_text::<40>("a\u{1b}[2J\nb").as_deref(), Some("a\u{fffd}[2J b"));
    }
}
