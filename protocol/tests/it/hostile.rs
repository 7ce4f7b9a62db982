//! What a peer can do with bytes: nothing but be refused.

use proptest::prelude::*;
use souk_protocol::{
    Announcement, Answer, Ask, Award, Bid, BlobRequest, Checkpoint, Document, LogFrame, MAX_MESSAGE, Manifest, Message,
    Offer, Receipt, ReceiptFile, Signed, Strict, Tally, TaskResult, Voucher, Work, codec,
};

use crate::samples;

fn never_panics(bytes: &[u8]) {
    let _ = Message::decode(bytes);
    let _ = codec::decode::<Ask>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<Answer>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<Manifest>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<Work>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<LogFrame>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<BlobRequest>(bytes, MAX_MESSAGE);
    let _ = codec::decode::<ReceiptFile>(bytes, MAX_MESSAGE);
    signed::<Offer>(bytes);
    signed::<Announcement>(bytes);
    signed::<Bid>(bytes);
    signed::<Tally>(bytes);
    signed::<Award>(bytes);
    signed::<TaskResult>(bytes);
    signed::<Checkpoint>(bytes);
    signed::<Voucher>(bytes);
    signed::<Receipt>(bytes);
}

fn signed<T: Document>(bytes: &[u8]) {
    if let Ok(signed) = codec::decode::<Signed<T>>(bytes, MAX_MESSAGE) {
        assert!(signed.verify(&Strict).is_err(), "nobody signed this");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_048)) {
        never_panics(&bytes);
    }

    #[test]
    fn a_message_with_changed_bytes_is_refused_or_reads_back_the_same(
        which in 0usize..20,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let messages = samples::messages();
        let mut bytes = messages[which % messages.len()].encode().unwrap();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        // What is accepted has one form only: the bytes it came in.
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn a_message_cut_short_or_followed_by_bytes_is_refused(which in 0usize..20, cut in any::<prop::sample::Index>(), extra in 1usize..9) {
        let messages = samples::messages();
        let bytes = messages[which % messages.len()].encode().unwrap();
        prop_assert!(Message::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let mut longer = bytes;
        longer.extend(std::iter::repeat_n(0, extra));
        prop_assert!(Message::decode(&longer).is_err());
    }
}

#[test]
fn every_message_reads_back() {
    for message in samples::messages() {
        let bytes = message.encode().unwrap();
        assert_eq!(Message::decode(&bytes).unwrap(), message);
        assert!(bytes.len() <= MAX_MESSAGE);
    }
}

#[test]
fn a_message_over_the_limit_is_refused_unread() {
    let bytes = vec![0; MAX_MESSAGE + 1];
    assert_eq!(Message::decode(&bytes).unwrap_err().to_string(), "262145 bytes are over the limit of 262144");
}

#[test]
fn an_unknown_kind_of_message_is_refused_by_name_of_its_tag() {
    let error = Message::decode(&[200, 0, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("malformed"), "{error}");
}

#[test]
fn a_list_of_billions_costs_nothing() {
    // Message 3 is an award; its list of work claims 2^34 items.
    let mut bytes = samples::messages()[3].encode().unwrap();
    let work = codec::encode(&samples::work(), MAX_MESSAGE).unwrap();
    let at = bytes.windows(work.len()).position(|window| window == work).unwrap();
    bytes[at - 8..at].copy_from_slice(&(1u64 << 34).to_le_bytes());
    let error = Message::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("over the limit of 64"), "{error}");
}

#[test]
fn a_manifest_and_a_work_order_read_back() {
    let manifest = samples::manifest();
    assert!(manifest.is_canonical());
    let bytes = codec::encode(&manifest, 4_096).unwrap();
    assert_eq!(codec::decode_canonical::<Manifest>(&bytes, 4_096).unwrap(), manifest);
}
