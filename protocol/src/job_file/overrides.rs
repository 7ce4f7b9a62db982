//! Fields of a job that come from outside of its file, such as flags. Each replaces the whole field.

use super::tree::{Key, Node, Tree};

/// A field and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The field: "resources.gpu".
    pub path: String,
    /// What it becomes, judged by the same rules as in a file.
    pub value: OverrideValue,
}

/// A value from outside of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverrideValue {
    /// Text, also for everything that has a grammar.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// Names and texts, for `env` and `labels`.
    Table(Vec<(String, String)>),
    /// A whole number.
    Whole(u32),
    /// True or false.
    Flag(bool),
    /// A list of tables of texts, for `inputs` and `outputs`.
    Tables(Vec<Vec<(String, String)>>),
    /// No value: the field is taken out of the file.
    Nothing,
}

impl Override {
    /// Puts the value in its place. Tables on the way are made where there are none; where a file has something
    /// else in place of a table, that is an error of the file, which is left for its judge.
    pub(super) fn apply(&self, tree: &mut Tree) {
        if self.value == OverrideValue::Nothing {
            return self.remove(tree);
        }
        let mut place = tree;
        for name in self.path.split('.') {
            let Node::Table(entries) = &mut place.node else { return };
            if !entries.iter().any(|(key, _)| key.name == name) {
                entries.push((Key { line: 0, name: name.to_owned() }, outside(Node::Table(Vec::new()))));
            }
            let Some((_, next)) = entries.iter_mut().find(|(key, _)| key.name == name) else { return };
            place = next;
        }
        let texts = |texts: &[String]| texts.iter().map(|text| outside(Node::Text(text.clone()))).collect();
        let table = |entries: &[(String, String)]| {
            let entry = |(name, text): &(String, String)| {
                (Key { line: 0, name: name.clone() }, outside(Node::Text(text.clone())))
            };
            Node::Table(entries.iter().map(entry).collect())
        };
        *place = outside(match &self.value {
            OverrideValue::Text(text) => Node::Text(text.clone()),
            OverrideValue::Texts(list) => Node::List(texts(list)),
            OverrideValue::Table(entries) => table(entries),
            OverrideValue::Tables(tables) => Node::List(tables.iter().map(|entries| outside(table(entries))).collect()),
            OverrideValue::Nothing => Node::Null,
            OverrideValue::Whole(number) => Node::Integer(number.to_string()),
            OverrideValue::Flag(value) => Node::Boolean(*value),
        });
    }

    fn remove(&self, tree: &mut Tree) {
        let (folder, name) = self.path.rsplit_once('.').unwrap_or(("", &self.path));
        let mut place = tree;
        for step in folder.split('.').filter(|step| !step.is_empty()) {
            let Node::Table(entries) = &mut place.node else { return };
            let Some((_, next)) = entries.iter_mut().find(|(key, _)| key.name == step) else { return };
            place = next;
        }
        if let Node::Table(entries) = &mut place.node {
            entries.retain(|(key, _)| key.name != name);
        }
    }
}

fn outside(node: Node) -> Tree {
    Tree { line: 0, node }
}
