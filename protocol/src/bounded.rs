//! Strings and lists whose largest size is part of their type, checked while decoding.

use core::{fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de};

/// Something is longer than its type allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} is over the limit of {max}")]
pub struct TooLong {
    /// Length found: bytes of a text, items of a list.
    pub len: usize,
    /// Largest length allowed.
    pub max: usize,
}

/// UTF-8 text of at most `N` bytes without control characters other than newline and tab.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Text<const N: usize>(String);

impl<const N: usize> Text<N> {
    /// Keeps as much of `text` as fits, replacing control characters: for reasons and remarks, never for data.
    #[must_use]
    pub fn clipped(text: &str) -> Self {
        let mut out = String::new();
        for c in text.chars() {
            let c = if is_clean(c) { c } else { '\u{fffd}' };
            if out.len().saturating_add(c.len_utf8()) > N {
                break;
            }
            out.push(c);
        }
        Self(out)
    }
}

fn is_clean(c: char) -> bool {
    let bidi = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !bidi && (!c.is_control() || c == '\n' || c == '\t')
}

impl<const N: usize> TryFrom<String> for Text<N> {
    type Error = TooLong;

    fn try_from(text: String) -> Result<Self, TooLong> {
        if text.len() > N { Err(TooLong { len: text.len(), max: N }) } else { Ok(Self(text)) }
    }
}

impl<const N: usize> TryFrom<&str> for Text<N> {
    type Error = TooLong;

    fn try_from(text: &str) -> Result<Self, TooLong> {
        Self::try_from(text.to_owned())
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Text<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::try_from(text).map_err(de::Error::custom)
    }
}

/// A list of at most `N` items.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct List<T, const N: usize>(Vec<T>);

impl<T, const N: usize> List<T, N> {
    /// The items, owned.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const N: usize> TryFrom<Vec<T>> for List<T, N> {
    type Error = TooLong;

    fn try_from(items: Vec<T>) -> Result<Self, TooLong> {
        if items.len() > N { Err(TooLong { len: items.len(), max: N }) } else { Ok(Self(items)) }
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a List<T, N> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for List<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A zero-sized element would let 8 bytes of input claim 2^34 items.
        const { assert!(size_of::<T>() > 0, "a list on the wire needs elements with a size") };
        struct Items<T, const N: usize>(core::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> de::Visitor<'de> for Items<T, N> {
            type Value = List<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} items")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                // The claimed length is refused before anything is read or allocated for it.
                if let Some(len) = seq.size_hint().filter(|len| *len > N) {
                    return Err(de::Error::custom(TooLong { len, max: N }));
                }
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == N {
                        return Err(de::Error::custom(TooLong { len: N.saturating_add(1), max: N }));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Items::<T, N>(core::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_keeps_whole_characters_and_replaces_escapes() {
        assert_eq!(&*Text::<4>::clipped("aéé"), "aé");
        assert_eq!(&*Text::<16>::clipped("a\u{1b}[31m"), "a\u{fffd}[31m");
        assert_eq!(&*Text::<16>::clipped("a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn a_list_that_claims_too_much_is_refused_before_it_is_read() {
        let list: List<u8, 4> = List::try_from(vec![1, 2, 3]).unwrap();
        let bytes = crate::codec::encode(&list, 64).unwrap();
        assert_eq!(crate::codec::decode::<List<u8, 4>>(&bytes, 64).unwrap(), list);
        let mut claims = bytes;
        claims.splice(0..8, (1u64 << 34).to_le_bytes());
        assert!(crate::codec::decode::<List<u8, 4>>(&claims, 64).unwrap_err().to_string().contains("limit of 4"));
    }
}
