//! One schema, three languages.

use proptest::prelude::*;

use super::{MAX_DEPTH, Node, from_json, from_yaml};
use crate::job_file::{Format, JobFile, parse};

const TOML: &str = r#"
version = 1
name = "sweep"
labels = { team = "vision" }
[runtime]
wasm = "./train.wasm"
args = ["--lr", "{LR}"]
env = { MODE = "fast", LEVEL = "3" }
[resources]
memory = "64MB.."
region = ["NO", "de"]
[market]
budget = "0.5 CR"
preemptible = false
[limits]
timeout = "90s"
[array]
matrix = { LR = ["0.1", "0.01"] }
max_parallel = 2
[[inputs]]
source = "./digits.csv"
target = "/in/digits.csv"
"#;

const YAML: &str = r#"# the same job
version: 1
name: sweep
labels: {team: vision}
runtime:
  wasm: ./train.wasm
  args: [--lr, "{LR}"]
  env:
    MODE: fast
    LEVEL: "3"
resources:
  memory: 64MB..
  region: [NO, de]
market:
  budget: 0.5 CR
  preemptible: false
limits:
  timeout: 90s
array:
  matrix:
    LR: ["0.1", "0.01"]
  max_parallel: 2
inputs:
  - source: ./digits.csv
    target: /in/digits.csv
"#;

const JSON: &str = r#"{
  "version": 1, "name": "sweep", "labels": {"team": "vision"},
  "runtime": {"wasm": "./train.wasm", "args": ["--lr", "{LR}"], "env": {"MODE": "fast", "LEVEL": "3"}},
  "resources": {"memory": "64MB..", "region": ["NO", "de"]},
  "market": {"budget": "0.5 CR", "preemptible": false},
  "limits": {"timeout": "90s"},
  "array": {"matrix": {"LR": ["0.1", "0.01"]}, "max_parallel": 2},
  "inputs": [{"source": "./digits.csv", "target": "/in/digits.csv"}]
}"#;

fn job(text: &str, format: Format) -> JobFile {
    let parsed = parse(text.as_bytes(), format).unwrap_or_else(|errors| panic!("{errors}"));
    JobFile { lines: std::collections::BTreeMap::new(), ..parsed.file }
}

fn refusal(text: &str, format: Format) -> String {
    parse(text.as_bytes(), format).unwrap_err().to_string()
}

#[test]
fn a_job_is_the_same_in_all_three_languages() {
    let toml = job(TOML, Format::Toml);
    assert_eq!(job(YAML, Format::Yaml), toml);
    assert_eq!(job(JSON, Format::Json), toml);
    assert_eq!(toml.resources.region, ["no", "de"]);
}

#[test]
fn the_ending_tells_the_language() {
    for (name, format) in [
        ("job.toml", Format::Toml),
        ("job.yaml", Format::Yaml),
        ("job.YML", Format::Yaml),
        ("job.json", Format::Json),
        ("job", Format::Toml),
    ] {
        assert_eq!(Format::of_name(name), format, "{name}");
    }
}

/// Case U15: what YAML 1.1 made of plain words and numbers.
#[test]
fn yaml_is_that_of_version_1_2() {
    let value = |text: &str| match from_yaml(&format!("x: {text}")) {
        (Some(tree), problems) if problems.is_empty() => match tree.node {
            Node::Table(entries) => entries[0].1.node.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for text in
        ["no", "NO", "on", "off", "yes", "y", "n", "1_000", "12:30:45", "2026-12-24", "0b11", "1.2.3", "1e", "+", "."]
    {
        assert!(matches!(value(text), Node::Text(found) if found == text), "{text}: {:?}", value(text));
    }
    for (text, digits) in [("010", "10"), ("0o10", "8"), ("0x1F", "31"), ("+7", "7"), ("-12", "-12")] {
        assert!(matches!(value(text), Node::Integer(found) if found == digits), "{text}: {:?}", value(text));
    }
    for text in ["1.50", "1e3", ".5", "-.inf", ".nan", "3."] {
        assert!(matches!(value(text), Node::Float(found) if found == text), "{text}: {:?}", value(text));
    }
    for text in ["", "~", "null"] {
        assert!(matches!(value(text), Node::Null), "{text}");
    }
    assert!(matches!(value("true"), Node::Boolean(true)));
    assert!(matches!(value("'true'"), Node::Text(text) if text == "true"));
}

#[test]
fn a_word_where_a_truth_is_due_is_an_error_with_its_line() {
    let text = YAML.replace("preemptible: false", "preemptible: no");
    assert_eq!(
        refusal(&text, Format::Yaml),
        "line 16: market.preemptible = \"no\": true or false is expected, not text"
    );
    let text = YAML.replace("LEVEL: \"3\"", "LEVEL: 3");
    assert_eq!(refusal(&text, Format::Yaml), "line 10: runtime.env.LEVEL = 3: text is expected, write \"3\"");
    let text = YAML.replace("timeout: 90s", "timeout:");
    assert!(
        refusal(&text, Format::Yaml).starts_with("line 18: limits.timeout = null: "),
        "{}",
        refusal(&text, Format::Yaml)
    );
}

#[test]
fn yaml_that_means_more_than_it_shows_is_refused() {
    for (from, to, message) in [
        ("name: sweep", "name: &x sweep", "line 3: anchors are not read"),
        ("name: sweep", "name: *x", "line 3: not valid YAML"),
        ("name: sweep", "name: !!str sweep", "line 3: tags are not read"),
        ("  env:", "  <<: {a: b}\n  env:", "runtime.\"<<\": unknown field"),
        ("version: 1", "version: 1\n---\nversion: 1", "a second document"),
        ("version: 1", "version: 1\nversion: 1", "line 3: \"version\": this key is given twice"),
        ("name: sweep", "name: sweep\n[a]: b", "a key is plain text"),
        ("name: sweep", "name: \"sweep", "not valid YAML"),
    ] {
        let found = refusal(&YAML.replace(from, to), Format::Yaml);
        assert!(found.contains(message), "{to}: {found}");
    }
    assert_eq!(refusal("# nothing\n", Format::Yaml).split(", ").next(), Some("line 2: the file is empty"));
}

#[test]
fn json_keeps_digits_and_names_what_is_wrong_with_its_line() {
    assert_eq!(
        refusal(&JSON.replace("\"timeout\": \"90s\"", "\"timeout\": 90"), Format::Json),
        "line 6: limits.timeout = 90: add a unit, e.g. \"90s\" or \"90m\""
    );
    assert_eq!(
        refusal(&JSON.replace("\"version\": 1,", "\"version\": 1, \"version\": 1,"), Format::Json),
        "line 2: \"version\": this key is given twice, keep one of the two"
    );
    assert!(refusal("{\n\"version\": 1,}", Format::Json).starts_with("line 2: not valid JSON: "));
    assert!(refusal("", Format::Json).contains("not valid JSON"));
    let (tree, _) = from_json("{\"a\": 123456789012345678901234567890, \"b\": 1.50, \"c\": \"\\ud83d\\ude00\"}");
    let Some(Node::Table(entries)) = tree.map(|tree| tree.node) else { panic!("no table") };
    let shown: Vec<_> = entries.iter().map(|(_, value)| value.shown().unwrap()).collect();
    assert_eq!(shown, ["123456789012345678901234567890", "1.50", "\"😀\""]);
}

#[test]
fn what_is_nested_too_deep_is_refused_before_it_is_read() {
    for depth in [MAX_DEPTH + 1, 100, 5_000] {
        let json = format!("{{\"x\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        let yaml = format!("x: {}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(json.as_bytes(), Format::Json).is_err());
        assert!(parse(yaml.as_bytes(), Format::Yaml).is_err());
        let block: String = (0..depth).map(|level| format!("{}- \n", "  ".repeat(level))).collect();
        assert!(parse(block.as_bytes(), Format::Yaml).is_err());
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_readers_panic(text in "[ -~\n\t{}\\[\\]\":,&*!|>#-]{0,200}") {
        let _ = parse(text.as_bytes(), Format::Yaml);
        let _ = parse(text.as_bytes(), Format::Json);
    }

    #[test]
    fn a_valid_file_cut_anywhere_is_refused_or_read_but_never_a_panic(cut in 0usize..700) {
        for (text, format) in [(YAML, Format::Yaml), (JSON, Format::Json)] {
            let text = text.get(..cut.min(text.len())).unwrap_or(text);
            let _ = parse(text.as_bytes(), format);
        }
    }
}
