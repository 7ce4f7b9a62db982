//! The known word that a mistyped one most likely means.

/// Longest word compared: no known word is longer, and the work grows with the square.
const MAX_COMPARED: usize = 64;

/// The candidate closest to `word`, if it is close enough to suggest; upper and lower case count as equal.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_COMPARED {
        return None;
    }
    let allowed = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance without regard to ASCII case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    // Costs of turning the part of `a` read so far into each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = i;
        let mut left = i.saturating_add(1);
        let mut next = vec![left];
        for (cb, above) in b.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal.saturating_add(usize::from(ca != *cb));
            left = replaced.min(above.saturating_add(1)).min(left.saturating_add(1));
            next.push(left);
            diagonal = *above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_textbook() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("Timeout", "timeout"), 0);
    }

    #[test]
    fn only_close_words_are_suggested() {
        let words = ["timeout", "stdout", "stop_grace"];
        assert_eq!(nearest("timout", words), Some("timeout"));
        assert_eq!(nearest("TIMEOUT", words), Some("timeout"));
        assert_eq!(nearest("banana", words), None);
    }
}
