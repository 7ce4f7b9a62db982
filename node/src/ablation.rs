//! What a step costs shows when it is left out: the switches of the latency benchmark (`tests/latency.py`).
//!
//! They exist only in a binary built for it (`--features ablation`), which says so at its start. In every other one
//! [`leaves_out`] is `false` and the compiler removes what depends on it.

/// A step on the way from a submitted job to its first output that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Signing and checking documents. A hash stands in for the signature.
    Signatures,
    /// Waiting for the journal's disk. Records are written, not synced.
    Journal,
    /// The sandbox: no process is asked, the output is made up.
    #[cfg(feature = "ablation")]
    Sandbox,
}

/// Whether this run of the node leaves a step out, by the words in `SOUK_ABLATE`: `signatures,journal,sandbox`.
#[cfg(feature = "ablation")]
pub(crate) fn leaves_out(step: Step) -> bool {
    static LEFT_OUT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let left_out = LEFT_OUT.get_or_init(|| {
        let words = std::env::var("SOUK_ABLATE").unwrap_or_default();
        if !words.is_empty() {
            tracing::warn!(%words, "a node for measurements: it leaves out what makes it safe");
        }
        words
    });
    let word = match step {
        Step::Signatures => "signatures",
        Step::Journal => "journal",
        Step::Sandbox => "sandbox",
    };
    left_out.split(',').any(|left_out| left_out == word)
}

/// No: nothing can be left out.
#[cfg(not(feature = "ablation"))]
pub(crate) const fn leaves_out(_: Step) -> bool {
    false
}
