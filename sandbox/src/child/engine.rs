//! The engine, configured once for compiler and runner alike: code compiled by one loads in the other.

use std::hash::{Hash, Hasher};

use wasmtime::{Config, Engine};

use super::ChildError;

/// An engine. `deterministic` counts fuel, makes NaNs canonical and refuses relaxed SIMD; otherwise nothing is
/// woven into the code: a run that takes too long is killed, which costs it nothing until then.
pub(crate) fn engine(deterministic: bool) -> Result<Engine, ChildError> {
    let mut config = Config::new();
    config
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_gc(false)
        .wasm_stack_switching(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .wasm_relaxed_simd(!deterministic)
        .cranelift_nan_canonicalization(deterministic)
        .consume_fuel(deterministic)
        .concurrency_support(false);
    Engine::new(&config).map_err(|error| ChildError::Other(format!("no engine: {error:#}")))
}

/// What compiled code depends on, in hex, for both modes together.
pub(crate) fn tag(engines: [&Engine; 2]) -> String {
    let mut hasher = TagHasher(blake3::Hasher::new());
    for engine in engines {
        engine.precompile_compatibility_hash().hash(&mut hasher);
    }
    // The compatibility hash covers what the code is made for; the features of this CPU are inferred at run time
    // and are part of the target flags it hashes.
    hasher.0.finalize().to_hex().to_string()
}

struct TagHasher(blake3::Hasher);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut head = [0; 8];
        self.0.finalize_xof().fill(&mut head);
        u64::from_le_bytes(head)
    }
}
