//! Tables as kubectl prints them: no borders, upper-case heads, two spaces between columns.

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

/// A table of text.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    head: &'static str,
    wide: bool,
    right: bool,
}

impl Table {
    /// A table with these heads. `>` before a head aligns its column to the right, `+` shows it only with `-o wide`.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        let column = |head: &&'static str| {
            let (wide, head) = head.strip_prefix('+').map_or((false, *head), |head| (true, head));
            let (right, head) = head.strip_prefix('>').map_or((false, head), |head| (true, head));
            Column { head, wide, right }
        };
        Self { columns: heads.iter().map(column).collect(), rows: Vec::new() }
    }

    /// A row, one cell a column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, without a line end.
    pub(crate) fn render(&self, wide: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let shown = |columns: &'_ [Column]| columns.iter().map(|column| wide || !column.wide).collect::<Vec<_>>();
        let shown = shown(&self.columns);
        let align = |column: &Column| if column.right { CellAlignment::Right } else { CellAlignment::Left };
        let pick = |cells: Vec<Cell>| {
            let cells = cells.into_iter().zip(&shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell);
            cells.collect::<Vec<_>>()
        };
        let heads = self.columns.iter().map(|column| Cell::new(column.head).set_alignment(align(column)));
        table.set_header(pick(heads.collect()));
        for row in &self.rows {
            let cells =
                row.iter().zip(&self.columns).map(|(text, column)| Cell::new(clean(text)).set_alignment(align(column)));
            table.add_row(pick(cells.collect()));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Text of peers in a terminal: no control characters, one line.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `-` for what is not there.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// How long ago, in one unit: `5s`, `12m`, `3h`, `9d`.
pub(crate) fn ago(then: souk_protocol::Timestamp) -> String {
    let seconds = crate::clock::wall().saturating_since(then).0 / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_borders_no_trailing_spaces_and_hides_wide_columns() {
        let mut table = Table::new(&["ID", ">RATE", "+MORE"]);
        table.row(["a".to_owned(), "1.00".to_owned(), "x".to_owned()]);
        table.row(["bcd".to_owned(), "12.00".to_owned(), "y\u{1b}[31m".to_owned()]);
        assert_eq!(table.render(false), "ID    RATE\na     1.00\nbcd  12.00");
        assert_eq!(table.render(true), "ID    RATE  MORE\na     1.00  x\nbcd  12.00  y [31m");
    }
}
