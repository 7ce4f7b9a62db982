//! Placeholders: "{LR}", "{index}", "{job}"; "{{" is a brace.

use std::collections::BTreeMap;

use crate::grammar::{nearest, shown};

/// The placeholder for the number of a task.
pub(super) const INDEX: &str = "index";
/// The placeholder for the job's id.
pub(super) const JOB: &str = "job";

/// A text with placeholders cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A "{" without its "}".
    #[error("\"{{\" at character {0} has no \"}}\", write \"{{{{\" for a brace")]
    Unclosed(usize),
    /// A name that the job does not define.
    #[error("unknown placeholder {name}, {hint}")]
    Unknown {
        /// The name, quoted and cut.
        name: String,
        /// What may be meant.
        hint: String,
    },
}

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Splits a template into texts and names.
pub(super) fn pieces(template: &str) -> Result<Vec<Piece<'_>>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if let Some(escaped) = after.strip_prefix('{') {
            pieces.push(Piece::Text("{"));
            rest = escaped;
        } else if let Some((name, following)) = after.split_once('}') {
            pieces.push(Piece::Name(name));
            rest = following;
        } else {
            let offset = template.len().saturating_sub(after.len());
            let before = template.get(..offset).map_or(0, |part| part.chars().count());
            return Err(TemplateError::Unclosed(before));
        }
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// The names in a template, each checked against those the job defines.
pub(super) fn names<'a>(template: &'a str, known: &[&str]) -> Result<Vec<&'a str>, TemplateError> {
    let mut names = Vec::new();
    for piece in pieces(template)? {
        let Piece::Name(name) = piece else { continue };
        if !known.contains(&name) {
            return Err(unknown(name, known));
        }
        names.push(name);
    }
    Ok(names)
}

fn unknown(name: &str, known: &[&str]) -> TemplateError {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}? (\"{{{{\" is a brace)"),
        None => format!("known are {}; \"{{{{\" is a brace", known.join(", ")),
    };
    TemplateError::Unknown { name: shown(name), hint }
}

/// Expands the placeholders of a text for one task: the values of its matrix, its index and its job.
///
/// # Errors
/// A brace without its partner, or a name without a value.
pub fn expand(template: &str, job: &str, index: u32, vars: &BTreeMap<String, String>) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len());
    for piece in pieces(template)? {
        match piece {
            Piece::Text(part) => text.push_str(part),
            Piece::Name(INDEX) => text.push_str(&index.to_string()),
            Piece::Name(JOB) => text.push_str(job),
            Piece::Name(name) => match vars.get(name) {
                Some(value) => text.push_str(value),
                None => {
                    let known: Vec<&str> = vars.keys().map(String::as_str).chain([INDEX, JOB]).collect();
                    return Err(unknown(name, &known));
                }
            },
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vars() -> BTreeMap<String, String> {
        [("LR".to_owned(), "0.1".to_owned()), ("SEED".to_owned(), "{index}".to_owned())].into()
    }

    #[test]
    fn placeholders_are_replaced_once() {
        let expand = |text| expand(text, "j0b", 7, &vars());
        assert_eq!(expand("--lr={LR}/{index}-{job}").unwrap(), "--lr=0.1/7-j0b");
        assert_eq!(expand("{SEED}").unwrap(), "{index}");
        assert_eq!(expand("{{\"a\":1}").unwrap(), "{\"a\":1}");
        assert_eq!(expand("{{{LR}}").unwrap(), "{0.1}");
        assert_eq!(expand("plain").unwrap(), "plain");
        assert_eq!(expand("").unwrap(), "");
    }

    #[test]
    fn unknown_names_and_open_braces_are_errors() {
        let error = |text| expand(text, "j", 0, &vars()).unwrap_err().to_string();
        assert_eq!(error("{lr}"), "unknown placeholder \"lr\", did you mean \"LR\"? (\"{{\" is a brace)");
        assert_eq!(
            error("{banana}"),
            "unknown placeholder \"banana\", known are LR, SEED, index, job; \"{{\" is a brace"
        );
        assert_eq!(error("ab{LR"), "\"{\" at character 3 has no \"}\", write \"{{\" for a brace");
        assert!(error("{}").contains("unknown placeholder \"\""));
    }

    proptest! {
        #[test]
        fn text_without_braces_is_unchanged(text in "[^{]*") {
            prop_assert_eq!(expand(&text, "j", 0, &vars()).unwrap(), text);
        }

        #[test]
        fn escaped_text_comes_back(text in "\\PC*") {
            prop_assert_eq!(expand(&text.replace('{', "{{"), "j", 0, &vars()).unwrap(), text);
        }
    }
}
