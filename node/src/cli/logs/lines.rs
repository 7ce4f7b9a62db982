//! Lines of a log and when they began to arrive.

use serde::Serialize;
use souk_protocol::Timestamp;

use crate::view::{Big, LogPart};

/// Bytes of a log with the times of their parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Where in `bytes` a part starts, and when it arrived. The first starts at 0.
    marks: Vec<(usize, Option<Timestamp>)>,
    /// Where the bytes stand in the log.
    offset: u64,
}

/// A line as `--json` shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    offset: Big,
    at: Option<Timestamp>,
}

impl Text {
    /// Adds a part that follows what is there.
    pub(super) fn push(&mut self, part: &LogPart, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.is_empty() {
            self.offset = part.offset.0;
        }
        if self.marks.last().is_none_or(|(_, at)| *at != part.at) {
            self.marks.push((self.bytes.len(), part.at));
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the text ends in the log.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    /// The last lines, if only those are wanted; an unfinished one counts.
    pub(super) fn tail(self, lines: Option<usize>) -> Self {
        let Some(lines) = lines else { return self };
        let start = if lines == 0 { self.bytes.len() } else { start_of_last(&self.bytes, lines) };
        let mut marks: Vec<_> = self.marks.iter().rev().skip_while(|(at, _)| *at > start).take(1).copied().collect();
        marks.extend(self.marks.iter().filter(|(at, _)| *at > start));
        let marks = marks.into_iter().map(|(at, time)| (at.saturating_sub(start), time)).collect();
        let bytes = self.bytes.get(start..).unwrap_or_default().to_vec();
        Self { bytes, marks, offset: self.offset.saturating_add(start as u64) }
    }

    /// Each part's time and bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Option<Timestamp>, &[u8])> {
        let ends = self.marks.iter().skip(1).map(|(at, _)| *at).chain([self.bytes.len()]);
        self.marks.iter().zip(ends).map(|((start, at), end)| (*at, self.bytes.get(*start..end).unwrap_or_default()))
    }

    /// Each line's place and time.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        let mut start = 0usize;
        self.bytes.split_inclusive(|byte| *byte == b'\n').map(move |line| {
            let mark = self.marks.partition_point(|(at, _)| *at <= start);
            let at = mark.checked_sub(1).and_then(|mark| self.marks.get(mark)).and_then(|(_, at)| *at);
            let offset = Big(self.offset.saturating_add(start as u64));
            start = start.saturating_add(line.len());
            Line { offset, at }
        })
    }
}

/// Where the last lines start; an unfinished one counts.
fn start_of_last(bytes: &[u8], lines: usize) -> usize {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    newlines.map(|(at, _)| at.saturating_add(1)).nth(lines.saturating_sub(1)).unwrap_or(0)
}

/// Writes the time before each line. A line is begun once, however many parts it comes in.
#[derive(Debug, Default)]
pub(super) struct Stamper {
    in_line: bool,
}

impl Stamper {
    /// What is to be printed for bytes that arrived at one time; `-` where nobody knows when.
    pub(super) fn stamp(&mut self, at: Option<Timestamp>, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len().saturating_add(32));
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.in_line {
                let at = at.map_or_else(|| "-".to_owned(), |at| at.to_string());
                out.extend_from_slice(at.as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(line);
            self.in_line = line.last() != Some(&b'\n');
        }
        out
    }

    pub(super) fn text(&mut self, text: &Text) -> Vec<u8> {
        text.parts().flat_map(|(at, bytes)| self.stamp(at, bytes)).collect()
    }

    /// Another log begins: what was begun of a line stays as it is.
    pub(super) fn restart(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.in_line) { b"\n" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: &[(u64, &str)]) -> Text {
        let mut text = Text::default();
        let mut offset = 100;
        for (at, bytes) in parts {
            let at = Some(Timestamp(*at)).filter(|at| at.0 > 0);
            let part = LogPart { attempt: 1, offset: Big(offset), at, data: String::new(), end: false };
            text.push(&part, bytes.as_bytes());
            offset += bytes.len() as u64;
        }
        text
    }

    #[test]
    fn tail_counts_lines_whether_the_last_is_finished_or_not() {
        let tail = |bytes: &str, lines| text(&[(1, bytes)]).tail(Some(lines)).bytes;
        assert_eq!(tail("a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(tail("a\nb\nc", 2), b"b\nc");
        assert_eq!(tail("a\nb\n", 9), b"a\nb\n");
        assert_eq!(tail("a\n", 0), b"");
        assert_eq!(tail("", 3), b"");
        assert_eq!(tail("\n\n\n", 1), b"\n");
    }

    #[test]
    fn each_line_has_the_time_of_its_first_byte() {
        let text = text(&[(0, "old\n"), (1_000, "a\nb"), (2_000, "c\n"), (3_500, "d")]);
        let shown = Stamper::default().text(&text);
        let expected = "- old\n1970-01-01T00:00:01Z a\n1970-01-01T00:00:01Z bc\n1970-01-01T00:00:03.500Z d";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
        let lines: Vec<_> = text.lines().map(|line| (line.offset.0, line.at.map(|at| at.0))).collect();
        assert_eq!(lines, [(100, None), (104, Some(1_000)), (106, Some(1_000)), (109, Some(3_500))]);
        assert_eq!(text.end(), 110);
        let last = text.tail(Some(2));
        assert_eq!((last.bytes.as_slice(), last.offset), (&b"bc\nd"[..], 106));
        assert_eq!(last.marks, [(0, Some(Timestamp(1_000))), (1, Some(Timestamp(2_000))), (3, Some(Timestamp(3_500)))]);
    }
}
