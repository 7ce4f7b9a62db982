//! A node's signed word about its hardware.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use souk_protocol::{Document, NetworkId, NodeId, Timestamp};

use crate::{
    inventory::{Gpu, Inventory},
    known::one_line,
};

/// What a node says it has. A claim with an age: the signature proves who made it, not that it is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareAttestation {
    /// The network it is meant for.
    pub network: NetworkId,
    /// Whose hardware, and who signs.
    pub node: NodeId,
    /// The parts.
    pub inventory: Inventory,
    /// When they were read, by the node's clock.
    pub at: Timestamp,
}

impl Document for HardwareAttestation {
    const DOMAIN: &'static str = "souk/1/hardware";
    const MAX_LEN: usize = 64 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.node
    }
}

impl HardwareAttestation {
    /// The statement for people, a part a line, safe to print whoever signed it.
    #[must_use]
    pub fn describe(&self) -> String {
        let machine = &self.inventory;
        let mut text = format!("hardware of {} by its own word of {}\n", self.node, self.at);
        let model = machine.cpu_model.as_ref().map(|model| plain(model));
        let cores = machine.cores.map(|cores| format!("{cores} logical processors"));
        line(&mut text, "processor", [model, cores]);
        line(&mut text, "memory", [machine.memory.map(|memory| memory.short())]);
        line(&mut text, "kernel", [machine.kernel.as_ref().map(|kernel| plain(kernel))]);
        for gpu in &machine.gpus {
            line(&mut text, &format!("gpu {}", gpu.index), parts(gpu));
        }
        for gone in &machine.unusable {
            let reason = format!("unusable: {}", plain(&gone.reason));
            line(&mut text, &format!("gpu {}", gone.index), [Some(reason)]);
        }
        line(&mut text, "fingerprint", [Some(machine.fingerprint().to_string())]);
        text
    }
}

fn parts(gpu: &Gpu) -> [Option<String>; 8] {
    let switch = |on: bool| if on { "on" } else { "off" };
    [
        Some(plain(&gpu.identity.to_string())),
        gpu.memory.map(|memory| memory.short()),
        gpu.driver.as_ref().map(|driver| format!("driver {}", plain(driver))),
        gpu.ecc.map(|on| format!("ECC {}", switch(on))),
        gpu.mig.map(|on| format!("MIG {}", switch(on))),
        gpu.power_limit_mw.map(|limit| format!("limit {} W", limit / 1_000)),
        gpu.pci.as_ref().map(|pci| plain(pci)),
        gpu.uuid.as_ref().map(|uuid| plain(uuid)),
    ]
}

/// Adds a line of what is known; "unknown" if nothing is.
fn line<const N: usize>(text: &mut String, name: &str, known: [Option<String>; N]) {
    let known: Vec<_> = known.into_iter().flatten().collect();
    let known = if known.is_empty() { "unknown".to_owned() } else { known.join(", ") };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {name:<12} {known}");
}

/// A text as received may hold line breaks and escapes: a forged line is as bad as a forged signature to who reads it.
fn plain(text: &str) -> String {
    one_line::<200>(text).to_string()
}

#[cfg(test)]
mod tests {
    use souk_protocol::{Key, List, Signed, Signer, Strict, Text, VerifyError, codec};

    use super::*;
    use crate::inventory::{
        UnusableGpu,
        tests::{a100, machine},
    };

    fn key() -> Key {
        Key::from_seed(&[1; 32])
    }

    fn attestation(inventory: Inventory) -> HardwareAttestation {
        HardwareAttestation {
            network: NetworkId([9; 32]),
            node: key().id(),
            inventory,
            at: Timestamp(1_700_000_000_000),
        }
    }

    #[test]
    fn it_is_signed_by_the_node_and_by_nobody_else() {
        let attestation = attestation(machine(vec![a100(0)]));
        let signed = Signed::sign(&attestation, &key()).unwrap().into_signed();
        assert_eq!(signed.verify(&Strict).unwrap().into_document(), attestation);
        let forged = Signed::sign(&attestation, &Key::from_seed(&[2; 32])).unwrap().into_signed();
        assert!(matches!(forged.verify(&Strict), Err(VerifyError::WrongSigner { .. })));
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let signed = Signed::sign(&attestation(machine(vec![a100(0)])), &key()).unwrap().into_signed();
        let bytes = codec::encode(&signed, 8 * 1024).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            let read = codec::decode::<Signed<HardwareAttestation>>(&bad, 8 * 1024);
            assert!(!read.is_ok_and(|signed| signed.verify(&Strict).is_ok()), "byte {at}");
        }
    }

    #[test]
    fn the_largest_fits() {
        let gone = |index| UnusableGpu { index, reason: Text::clipped(&"r".repeat(200)) };
        let mut full = machine((0..64).map(a100).collect());
        full.unusable = List::try_from((0..64).map(gone).collect::<Vec<_>>()).unwrap();
        Signed::sign(&attestation(full), &key()).unwrap();
    }

    #[test]
    fn it_reads_as_a_table() {
        let mut inventory = machine(vec![a100(0)]);
        inventory.unusable =
            List::try_from(vec![UnusableGpu { index: 1, reason: Text::clipped("it needs a reset") }]).unwrap();
        let text = attestation(inventory.clone()).describe();
        let (node, fingerprint) = (key().id(), inventory.fingerprint());
        let expected = [
            format!("hardware of {node} by its own word of 2023-11-14T22:13:20Z"),
            "  processor    AMD EPYC 7713 64-Core Processor, 128 logical processors".to_owned(),
            "  memory       549.8 GB".to_owned(),
            "  kernel       6.1.0-18-amd64".to_owned(),
            "  gpu 0        A100 80GB sxm, 85.9 GB, driver 550.54.15, ECC on, MIG off, limit 400 W, \
             00000000:17:00.0, GPU-00000000-0000-0000-0000-000000000000"
                .to_owned(),
            "  gpu 1        unusable: it needs a reset".to_owned(),
            format!("  fingerprint  {fingerprint}"),
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        let text = attestation(Inventory::default()).describe();
        assert!(text.contains("  processor    unknown\n  memory       unknown\n  kernel       unknown\n"), "{text}");
    }

    #[test]
    fn a_peer_cannot_forge_lines_or_draw_on_the_terminal() {
        let hostile = Text::try_from("EPYC\n  gpu 7  H100 80GB\u{1b}[2J").unwrap();
        let text = attestation(Inventory { cpu_model: Some(hostile), ..Inventory::default() }).describe();
        assert_eq!(text.lines().count(), 5);
        assert!(!text.contains('\u{1b}'));
    }
}
