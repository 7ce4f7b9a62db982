//! The same look at a component: what it imports and exports, and every module in it, however deep.

use wasmparser::{ComponentExternalKind, ComponentTypeRef, Encoding, Parser, Payload, TypeBounds};

use super::prescan::{Facts, LISTED, Missing, ModuleScan, cut, feature, invalid, too_many};
use crate::{
    error::ModuleError,
    limits::{MAX_COMPONENT_TABLES, MAX_DEPTH, MAX_PARTS},
};

/// The interface that makes a component a command.
const RUN: &str = "wasi:cli/run";

/// What a component can import, in any version 0.2.x: the command world without a network. Of the sockets only the
/// types are there, for C libraries name them in the code that closes any file; nothing that makes or opens one is,
/// and neither is wasi:http.
const OFFERED: [&str; 23] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/udp",
];

/// Whether a name is an interface's, in a version that is offered.
fn is(name: &str, interface: &str) -> bool {
    let patch = name.strip_prefix(interface).and_then(|version| version.strip_prefix("@0.2."));
    patch.is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Looks at the whole component once.
pub(crate) fn scan(bytes: &[u8]) -> Result<Facts, ModuleError> {
    let mut scan = Scan::default();
    for payload in Parser::new(0).parse_all(bytes) {
        scan.payload(payload.map_err(invalid)?)?;
    }
    scan.finish()
}

/// Something whose end has not come yet.
enum Open {
    Component,
    Module(Box<ModuleScan>),
}

#[derive(Default)]
struct Scan {
    /// From the whole to the part that is looked at.
    open: Vec<Open>,
    parts: usize,
    functions: u32,
    memories: u32,
    tables: u64,
    memory_bytes: u64,
    missing: Missing,
    runs: bool,
    exports: Vec<String>,
}

impl Scan {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), ModuleError> {
        match payload {
            Payload::Version { encoding, .. } => return self.begin(encoding),
            Payload::End(_) => return self.end(),
            _ => {}
        }
        match self.open.as_mut_slice() {
            [.., Open::Module(module)] => module.payload(payload, None),
            [Open::Component] => self.outermost(payload),
            // What a nested component imports and exports, the one around it gives and takes.
            _ => Ok(()),
        }
    }

    fn begin(&mut self, encoding: Encoding) -> Result<(), ModuleError> {
        self.parts = self.parts.saturating_add(1);
        if self.parts > MAX_PARTS {
            return feature(&format!("more than {MAX_PARTS} modules and components in one component"));
        }
        if self.open.len() == MAX_DEPTH {
            return feature(&format!("components nested more than {MAX_DEPTH} deep"));
        }
        self.open.push(match encoding {
            Encoding::Component => Open::Component,
            Encoding::Module => Open::Module(Box::default()),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), ModuleError> {
        let Some(Open::Module(module)) = self.open.pop() else {
            return Ok(());
        };
        self.functions = self.functions.saturating_add(module.functions());
        too_many(self.functions)?;
        self.memories = self.memories.saturating_add(module.memories);
        if self.memories > 1 {
            return feature("more than one memory in a component");
        }
        self.tables = self.tables.saturating_add(module.tables);
        if self.tables > MAX_COMPONENT_TABLES {
            return feature(&format!("more than {MAX_COMPONENT_TABLES} tables in a component"));
        }
        self.memory_bytes = self.memory_bytes.max(module.facts.memory_bytes);
        Ok(())
    }

    fn outermost(&mut self, payload: Payload<'_>) -> Result<(), ModuleError> {
        match payload {
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    let import = import.map_err(invalid)?;
                    self.import(import.name.name, import.ty);
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(invalid)?;
                    let name = export.name.name;
                    if export.kind == ComponentExternalKind::Instance && is(name, RUN) {
                        self.runs = true;
                    } else if self.exports.len() < LISTED {
                        self.exports.push(cut(name));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, name: &str, ty: ComponentTypeRef) {
        let kind = match ty {
            ComponentTypeRef::Instance(_) if OFFERED.iter().any(|interface| is(name, interface)) => return,
            // Another name for a type that an offered interface defines.
            ComponentTypeRef::Type(TypeBounds::Eq(_)) => return,
            ComponentTypeRef::Instance(_) => "interface",
            ComponentTypeRef::Func(_) => "function",
            ComponentTypeRef::Module(_) => "module",
            ComponentTypeRef::Component(_) => "component",
            ComponentTypeRef::Value(_) => "value",
            ComponentTypeRef::Type(_) => "type",
        };
        self.missing.push(|| format!("{} ({kind})", cut(name)));
    }

    fn finish(self) -> Result<Facts, ModuleError> {
        self.missing.check()?;
        if !self.runs {
            return Err(ModuleError::NotCommand { has: self.exports });
        }
        Ok(Facts { component: true, memory_bytes: self.memory_bytes, ..Facts::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = r#"(instance $run) (export "wasi:cli/run@0.2.0" (instance $run))"#;

    fn scan_text(text: &str) -> Result<Facts, ModuleError> {
        scan(&wat::parse_str(format!("(component {text})")).unwrap())
    }

    fn refusal(text: &str) -> String {
        scan_text(&format!("{text} {COMMAND}")).unwrap_err().to_string()
    }

    #[test]
    fn a_command_is_known_for_one_with_the_memory_of_its_module() {
        let text = format!(
            "(core module (memory 3) (table 5 funcref) (func)) (core module (import \"a\" \"b\" (func))) {COMMAND}"
        );
        let facts = scan_text(&text).unwrap();
        assert!(facts.component);
        assert_eq!(facts.check("_start", 3 * 65_536), Ok(()));
        assert_eq!(facts.check("_start", 1), Err(ModuleError::MemoryMinimum { needs: 3 * 65_536, limit: 1 }));
        assert_eq!(
            facts.check("main", 1 << 30).unwrap_err().to_string(),
            "runtime.entry is \"main\", but a component is started by its wasi:cli/run and by nothing else; leave \
             runtime.entry out"
        );
    }

    #[test]
    fn a_component_without_run_is_no_command() {
        let run = |name: &str| scan_text(&format!("(instance $i) (export \"{name}\" (instance $i))"));
        assert!(run("wasi:cli/run@0.2.0").is_ok());
        assert!(run("wasi:cli/run@0.2.99").is_ok());
        for name in ["wasi:cli/run", "wasi:cli/run@0.2.0-rc1", "wasi:cli/run@0.3.0", "wasi:http/incoming-handler@0.2.0"]
        {
            assert_eq!(run(name), Err(ModuleError::NotCommand { has: vec![name.to_owned()] }));
        }
        // Not the run of a component inside.
        let inside = scan_text(&format!("(component {COMMAND})"));
        assert_eq!(inside, Err(ModuleError::NotCommand { has: Vec::new() }));
    }

    #[test]
    fn imports_are_offered_by_interface_and_version_and_refused_by_name() {
        let import = |name: &str| scan_text(&format!("(import \"{name}\" (instance)) {COMMAND}"));
        for interface in OFFERED {
            assert!(import(&format!("{interface}@0.2.6")).is_ok(), "{interface}");
        }
        for name in [
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:sockets/instance-network@0.2.0",
            "wasi:sockets/tcp-create-socket@0.2.0",
            "wasi:sockets/udp-create-socket@0.2.0",
            "wasi:sockets/ip-name-lookup@0.2.0",
            "wasi:cli/stdout@0.3.0",
            "wasi:cli/stdout",
        ] {
            let error = import(name).unwrap_err().to_string();
            assert_eq!(error, format!("the module imports what is not offered: {name} (interface)"));
        }
        assert_eq!(
            refusal(r#"(import "steal" (func)) (import "code" (core module))"#),
            "the module imports what is not offered: steal (function), code (module)"
        );
    }

    #[test]
    fn modules_are_looked_at_however_deep_they_are() {
        let deep = |text: &str| refusal(&format!("(component (component (core module {text})))"));
        assert!(deep("(memory i64 1)").contains("memory64"));
        assert!(deep("(table 10000000 funcref)").contains("10000000 elements"));
        assert!(deep(&format!("(func {})", "nop ".repeat(1 << 20))).contains("1048578 bytes"));
        let many = format!("(core module {})", "(func)".repeat(60_000));
        assert!(refusal(&format!("(component {many}) {many}")).contains("120000 functions"));
        let memory = "(core module (memory 1))";
        assert!(refusal(&format!("(component {memory}) {memory}")).contains("more than one memory"));
        let tables = "(core module (table 1 funcref) (table 1 funcref) (table 1 funcref))";
        assert!(refusal(&tables.repeat(3)).contains("more than 8 tables"));
    }

    #[test]
    fn nesting_is_bounded_in_depth_and_in_number() {
        let nested = |depth: usize| format!("{}{}", "(component ".repeat(depth), ")".repeat(depth));
        assert!(scan_text(&format!("{} {COMMAND}", nested(MAX_DEPTH - 1))).is_ok());
        assert!(refusal(&nested(MAX_DEPTH)).contains("nested more than 8 deep"));
        assert!(scan_text(&format!("{} {COMMAND}", "(core module)".repeat(MAX_PARTS - 1))).is_ok());
        assert!(refusal(&"(core module)".repeat(MAX_PARTS)).contains("more than 100 modules"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_scan_panic(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            bytes.splice(0..0, *b"\0asm\x0d\0\x01\0");
            let _ = scan(&bytes);
        }
    }
}
