//! A look at a module before anything is spent on compiling it: sizes, features by name, imports by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wasmparser::{CompositeInnerType, Encoding, ExternalKind, FuncType, Parser, Payload, TypeRef};

use super::component;
use crate::{
    error::ModuleError,
    limits::{MAX_FUNCTION_BYTES, MAX_FUNCTIONS, MAX_MODULE_BYTES, MAX_TABLE_ELEMENTS, MAX_TABLES},
};

/// Names listed in an error, and function exports remembered per module beyond those of type `() -> ()`.
pub(super) const LISTED: usize = 20;
/// Function exports remembered per module. A command has one or two; a module may export all it has.
const REMEMBERED: usize = 4_096;
/// The longest name that is remembered or listed whole.
const NAME_BYTES: usize = 256;
/// The entry of who chose none.
pub(super) const DEFAULT_ENTRY: &str = "_start";
/// The signature of an entry.
const ENTRY: &str = "() -> ()";

/// What is known of a module without compiling it: enough to judge a task before a runner is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Bytes of memory the module starts with.
    pub(crate) memory_bytes: u64,
    /// Exported functions of a module and their signatures.
    pub(crate) functions: BTreeMap<String, String>,
    /// Whether it is a component: a command, started by its `wasi:cli/run`.
    pub(crate) component: bool,
}

impl Facts {
    /// Whether a task with this entry can start within this memory.
    pub(crate) fn check(&self, entry: &str, memory_bytes: u64) -> Result<(), ModuleError> {
        match self.functions.get(entry) {
            _ if self.component => component_entry(entry)?,
            Some(signature) if signature == ENTRY => {}
            Some(signature) => {
                return Err(ModuleError::WrongSignature { entry: entry.to_owned(), found: signature.clone() });
            }
            None => {
                return Err(ModuleError::MissingExport {
                    entry: entry.to_owned(),
                    has: self.functions.keys().take(LISTED).cloned().collect(),
                });
            }
        }
        if self.memory_bytes > memory_bytes {
            return Err(ModuleError::MemoryMinimum { needs: self.memory_bytes, limit: memory_bytes });
        }
        Ok(())
    }
}

/// A component has no entry to choose.
pub(super) fn component_entry(entry: &str) -> Result<(), ModuleError> {
    if entry == DEFAULT_ENTRY { Ok(()) } else { Err(ModuleError::ComponentEntry { entry: entry.to_owned() }) }
}

/// What can be imported: module, name, signature.
pub(crate) type Offered = BTreeMap<(String, String), String>;

/// Looks at the whole module or component once. `offered` is what a module can import.
pub(crate) fn scan(bytes: &[u8], offered: &Offered) -> Result<Facts, ModuleError> {
    if header(bytes)? == Encoding::Component {
        return component::scan(bytes);
    }
    let mut scan = ModuleScan::default();
    for payload in Parser::new(0).parse_all(bytes) {
        scan.payload(payload.map_err(invalid)?, Some(offered))?;
    }
    scan.finish()
}

fn header(bytes: &[u8]) -> Result<Encoding, ModuleError> {
    if bytes.len() as u64 > MAX_MODULE_BYTES {
        return Err(ModuleError::TooLarge { bytes: bytes.len() as u64, limit: MAX_MODULE_BYTES });
    }
    if bytes.starts_with(b"\x7fELF") {
        return Err(ModuleError::Precompiled);
    }
    let not_wasm = |found: &str| Err(ModuleError::NotWasm { found: found.to_owned() });
    match bytes {
        [] => not_wasm("the file is empty"),
        [b'\0', b'a', b's', b'm', 1, 0, 0, 0, ..] => Ok(Encoding::Module),
        [b'\0', b'a', b's', b'm', 13, 0, 1, 0, ..] => Ok(Encoding::Component),
        [b'\0', b'a', b's', b'm', ..] => not_wasm("the header has an unknown version"),
        _ if [&b"(module"[..], b"(component"].iter().any(|text| bytes.trim_ascii_start().starts_with(text)) => {
            not_wasm("this is the text format; assemble it first (wasm-tools parse)")
        }
        head => {
            let head: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            not_wasm(&format!("it starts with {}, not 00 61 73 6d", head.join(" ")))
        }
    }
}

pub(super) fn invalid(error: impl std::fmt::Display) -> ModuleError {
    ModuleError::Invalid { reason: error.to_string().chars().take(500).collect() }
}

pub(super) fn feature<T>(name: &str) -> Result<T, ModuleError> {
    Err(ModuleError::Feature { feature: name.to_owned() })
}

/// Imports that are not offered: the first by name, the rest by number.
#[derive(Default)]
pub(super) struct Missing {
    names: Vec<String>,
    more: u32,
}

impl Missing {
    pub(super) fn push(&mut self, name: impl FnOnce() -> String) {
        if self.names.len() == LISTED {
            self.more = self.more.saturating_add(1);
        } else {
            self.names.push(name());
        }
    }

    pub(super) fn check(self) -> Result<(), ModuleError> {
        let Missing { mut names, more } = self;
        if names.is_empty() {
            return Ok(());
        }
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        Err(ModuleError::MissingImports { names })
    }
}

/// A module, as far as it has been seen.
#[derive(Default)]
pub(super) struct ModuleScan {
    pub(super) facts: Facts,
    types: Vec<String>,
    functions: Vec<u32>,
    imported_functions: u32,
    bodies: u32,
    pub(super) memories: u32,
    pub(super) tables: u64,
    exports: Vec<(String, u32)>,
    missing: Missing,
}

impl ModuleScan {
    /// How many functions it has, imports included.
    pub(super) fn functions(&self) -> u32 {
        u32::try_from(self.functions.len()).unwrap_or(u32::MAX)
    }

    /// Takes up one section or function. `offered` is absent for a module in a component, which links it.
    pub(super) fn payload(&mut self, payload: Payload<'_>, offered: Option<&Offered>) -> Result<(), ModuleError> {
        match payload {
            Payload::TypeSection(groups) => {
                for group in groups {
                    for ty in group.map_err(invalid)?.into_types() {
                        self.types.push(match &ty.composite_type.inner {
                            CompositeInnerType::Func(function) => signature(function),
                            _ => return feature("garbage-collected types (gc)"),
                        });
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    self.import(import.module, import.name, import.ty, offered);
                }
            }
            Payload::FunctionSection(functions) => {
                let count = functions.count().saturating_add(self.imported_functions);
                too_many(count)?;
                for index in functions {
                    self.functions.push(index.map_err(invalid)?);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    self.table(table.map_err(invalid)?.ty)?;
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    self.memory(memory.map_err(invalid)?)?;
                }
            }
            Payload::TagSection(_) => return feature("exception handling"),
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(invalid)?;
                    if export.kind == ExternalKind::Func && self.exports.len() < REMEMBERED {
                        self.exports.push((cut(export.name), export.index));
                    }
                }
            }
            Payload::CodeSectionStart { count, .. } => too_many(count)?,
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                if bytes > MAX_FUNCTION_BYTES {
                    return Err(ModuleError::FunctionTooLarge {
                        index: self.imported_functions.saturating_add(self.bodies),
                        bytes,
                        limit: MAX_FUNCTION_BYTES,
                    });
                }
                self.bodies = self.bodies.saturating_add(1);
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: TypeRef, offered: Option<&Offered>) {
        let (kind, function) = match ty {
            TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                let signature = self.types.get(index as usize).cloned();
                (signature.unwrap_or_default(), Some(index))
            }
            TypeRef::Table(_) => ("table".to_owned(), None),
            TypeRef::Memory(memory) if memory.shared => ("shared memory".to_owned(), None),
            TypeRef::Memory(_) => ("memory".to_owned(), None),
            TypeRef::Global(_) => ("global".to_owned(), None),
            TypeRef::Tag(_) => ("tag".to_owned(), None),
        };
        if let Some(index) = function {
            self.functions.push(index);
            self.imported_functions = self.imported_functions.saturating_add(1);
        }
        let Some(offered) = offered else {
            return;
        };
        let offer = offered.get(&(module.to_owned(), name.to_owned()));
        if function.is_some() && offer == Some(&kind) {
            return;
        }
        self.missing.push(|| {
            let (module, name) = (cut(module), cut(name));
            match offer {
                Some(offer) => format!("{module}.{name} ({kind}; it is offered as {offer})"),
                None => format!("{module}.{name} ({kind})"),
            }
        });
    }

    fn memory(&mut self, memory: wasmparser::MemoryType) -> Result<(), ModuleError> {
        if memory.memory64 {
            return feature("64-bit memory (memory64)");
        }
        if memory.shared {
            return feature("shared memory (threads)");
        }
        if memory.page_size_log2.is_some() {
            return feature("custom page sizes");
        }
        self.memories = self.memories.saturating_add(1);
        if self.memories > 1 {
            return feature("more than one memory (multi-memory)");
        }
        self.facts.memory_bytes = memory.initial.saturating_mul(65_536);
        Ok(())
    }

    fn table(&mut self, table: wasmparser::TableType) -> Result<(), ModuleError> {
        if table.table64 {
            return feature("64-bit tables (memory64)");
        }
        if table.shared {
            return feature("shared tables");
        }
        self.tables = self.tables.saturating_add(1);
        if self.tables > MAX_TABLES {
            return feature("more than 4 tables");
        }
        if table.initial > MAX_TABLE_ELEMENTS {
            return Err(ModuleError::TableMinimum { elements: table.initial, limit: MAX_TABLE_ELEMENTS });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Facts, ModuleError> {
        self.missing.check()?;
        for (name, index) in self.exports {
            let signature = self.functions.get(index as usize).and_then(|index| self.types.get(*index as usize));
            if let Some(signature) = signature {
                self.facts.functions.insert(name, signature.clone());
            }
        }
        Ok(self.facts)
    }
}

pub(super) fn too_many(count: u32) -> Result<(), ModuleError> {
    if count > MAX_FUNCTIONS {
        return Err(ModuleError::TooManyFunctions { count, limit: MAX_FUNCTIONS });
    }
    Ok(())
}

/// A name that is no longer than a message needs.
pub(super) fn cut(name: &str) -> String {
    if name.len() <= NAME_BYTES {
        return name.to_owned();
    }
    let mut end = NAME_BYTES;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}..", name.get(..end).unwrap_or_default())
}

/// A type as people write it: `(i32, i64) -> (i32)`, cut where nobody reads on.
fn signature(function: &FuncType) -> String {
    let list = |types: &[wasmparser::ValType]| {
        let mut names: Vec<String> = types.iter().take(32).map(ToString::to_string).collect();
        if types.len() > 32 {
            names.push("..".to_owned());
        }
        names.join(", ")
    };
    format!("({}) -> ({})", list(function.params()), list(function.results()))
}

/// The same of a function that the host offers.
pub(crate) fn host_signature(function: &wasmtime::FuncType) -> String {
    let params: Vec<String> = function.params().map(|ty| ty.to_string()).collect();
    let results: Vec<String> = function.results().map(|ty| ty.to_string()).collect();
    format!("({}) -> ({})", params.join(", "), results.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Offered {
        let key = ("wasi_snapshot_preview1".to_owned(), "proc_exit".to_owned());
        BTreeMap::from([(key, "(i32) -> ()".to_owned())])
    }

    fn scan_text(text: &str) -> Result<Facts, ModuleError> {
        scan(&wat::parse_str(text).unwrap(), &offered())
    }

    #[test]
    fn exports_are_known_with_their_signatures() {
        let facts = scan_text(
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
                (memory 3) (func (export "_start")) (func (export "add") (param i32 i64) (result f32) f32.const 0))"#,
        )
        .unwrap();
        assert_eq!(facts.memory_bytes, 3 * 65_536);
        assert_eq!(facts.check("_start", 3 * 65_536), Ok(()));
        assert_eq!(facts.check("_start", 1), Err(ModuleError::MemoryMinimum { needs: 3 * 65_536, limit: 1 }));
        assert_eq!(
            facts.check("not_start", 1 << 30).unwrap_err().to_string(),
            r#"the module exports no function "not_start"; it has: _start, add"#
        );
        assert_eq!(
            facts.check("add", 1 << 30).unwrap_err().to_string(),
            r#"the entry "add" has the signature (i32, i64) -> (f32), it must be () -> ()"#
        );
    }

    #[test]
    fn imports_that_are_not_offered_are_all_named() {
        let error = scan_text(
            r#"(module (import "env" "f" (func (param i32))) (import "env" "m" (memory 1))
                (import "wasi_snapshot_preview1" "proc_exit" (func)))"#,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the module imports what is not offered: env.f ((i32) -> ()), env.m (memory), \
             wasi_snapshot_preview1.proc_exit (() -> (); it is offered as (i32) -> ())"
        );
    }

    #[test]
    fn what_is_no_module_says_what_it_is() {
        let refuse = |bytes: &[u8]| scan(bytes, &offered()).unwrap_err().to_string();
        assert_eq!(refuse(b""), "not a WebAssembly module: the file is empty");
        assert!(refuse(b"#!/bin/sh\n").contains("it starts with 23 21 2f 62 69 6e 2f 73"));
        assert!(refuse(b"\x7fELF...").contains("never accepted"));
        assert!(refuse(b"(module)").contains("text format"));
        assert!(refuse(b"(component)").contains("text format"));
        assert!(refuse(b"\0asm\x0d\0\x01\0").contains("no command"));
        assert!(refuse(b"\0asm\x0c\0\x01\0").contains("unknown version"));
        assert!(refuse(b"\0asm\x02\0\0\0").contains("unknown version"));
        assert!(refuse(b"\0asm\x01\0\0\0\x01\xff").contains("invalid"));
    }

    #[test]
    fn proposals_are_refused_by_name() {
        let feature = |text: &str| match scan_text(text) {
            Err(ModuleError::Feature { feature }) => feature,
            other => panic!("{other:?}"),
        };
        assert!(feature("(module (memory i64 1))").contains("memory64"));
        assert!(feature("(module (memory 1 2 shared))").contains("shared memory"));
        assert!(feature("(module (memory 1) (memory 1))").contains("multi-memory"));
        assert!(feature("(module (table i64 1 funcref))").contains("memory64"));
        assert!(feature("(module (tag))").contains("exception"));
        assert!(feature("(module (type (struct)))").contains("gc"));
        assert!(feature("(module (memory 1 (pagesize 1)))").contains("page sizes"));
    }

    #[test]
    fn sizes_over_the_limits_are_refused_before_compiling() {
        assert!(matches!(
            scan_text("(module (table 10000000 funcref))"),
            Err(ModuleError::TableMinimum { elements: 10_000_000, .. })
        ));
        let many = format!("(module {})", "(func)".repeat(100_001));
        assert!(matches!(scan_text(&many), Err(ModuleError::TooManyFunctions { count: 100_001, .. })));
        let huge = format!("(module (func {}))", "nop ".repeat(1 << 20));
        assert!(matches!(scan_text(&huge), Err(ModuleError::FunctionTooLarge { index: 0, bytes: 1_048_578, .. })));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_scan_panic(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let _ = scan(&bytes, &offered());
            bytes.splice(0..0, *b"\0asm\x01\0\0\0");
            let _ = scan(&bytes, &offered());
        }
    }
}
