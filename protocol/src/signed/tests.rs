use super::*;
use crate::{
    id::LeaseId,
    money::Credits,
    units::{Millis, Timestamp},
    voucher::{Discharge, Voucher},
};

fn key(seed: u8) -> Key {
    Key::from_seed(&[seed; 32])
}

fn voucher(renter: NodeId) -> Voucher {
    Voucher {
        lease: LeaseId([3; 16]),
        renter,
        provider: NodeId([4; 32]),
        number: 1,
        total: Credits(1_200),
        run: Millis(900),
        billed: Hash([5; 32]),
        count: 1,
        at: Timestamp(1_700_000_000_000),
    }
}

#[test]
fn a_signed_voucher_verifies_and_keeps_its_hash() {
    let renter = key(1);
    let signed = Signed::sign(&voucher(renter.id()), &renter).unwrap();
    let again = signed.signed().verify(&Strict).unwrap();
    assert_eq!(again, signed);
    assert_eq!(again.hash(), signed.signed().hash());
}

#[test]
fn every_flipped_bit_is_refused() {
    let renter = key(1);
    let signed = Signed::sign(&voucher(renter.id()), &renter).unwrap();
    let bytes = codec::encode(signed.signed(), 4096).unwrap();
    for i in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[i / 8] ^= 1 << (i % 8);
        let accepted = codec::decode::<Signed<Voucher>>(&bad, 4096).is_ok_and(|s| s.verify(&Strict).is_ok());
        assert!(!accepted, "bit {i}");
    }
}

#[test]
fn a_stranger_may_not_sign() {
    let signed = Signed::sign(&voucher(key(1).id()), &key(2)).unwrap();
    let error = signed.signed().verify(&Strict).unwrap_err();
    assert_eq!(error, VerifyError::WrongSigner { signer: key(2).id() });
}

#[test]
fn a_document_of_another_domain_is_refused() {
    // The same bytes, signed as a voucher, presented as another type of the same shape.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Other(Voucher);
    impl Document for Other {
        const DOMAIN: &'static str = "souk/1/other";
        const MAX_LEN: usize = 512;
        fn may_sign(&self, _: &NodeId) -> bool {
            true
        }
    }
    let renter = key(1);
    let signed = Signed::sign(&voucher(renter.id()), &renter).unwrap();
    let bytes = codec::encode(signed.signed(), 4096).unwrap();
    let other: Signed<Other> = codec::decode(&bytes, 4096).unwrap();
    assert_eq!(other.verify(&Strict).unwrap_err(), VerifyError::BadSignature);
}

#[test]
fn small_order_and_zero_keys_are_refused() {
    // A small-order key verifies a forged signature for any message under the plain rule.
    let mut one = [0; 32];
    one[0] = 1;
    for weak in [[0; 32], one] {
        let mut signature = [0; 64];
        signature[0] = 1;
        let error = Strict.check(&NodeId(weak), &Hash([9; 32]), &signature).unwrap_err();
        assert_eq!(error, VerifyError::WeakKey);
    }
}

#[test]
fn trailing_bytes_in_the_payload_are_refused() {
    let renter = key(1);
    let mut payload = codec::encode(&voucher(renter.id()), 512).unwrap();
    payload.push(0);
    let digest = digest::<Voucher>(&payload);
    let signed: Signed<Voucher> = Signed {
        signature: Signature::from_bytes(renter.sign(&digest)),
        payload: List::try_from(payload).unwrap(),
        signer: renter.id(),
        kind: PhantomData,
    };
    assert!(matches!(signed.verify(&Strict), Err(VerifyError::Payload(_))));
}

#[test]
fn domains_are_unique() {
    use crate::{announcement::*, award::*, bid::*, offer::*, receipt::*, result::*, telemetry::*};
    let domains = [
        Offer::DOMAIN,
        Announcement::DOMAIN,
        Bid::DOMAIN,
        Award::DOMAIN,
        Accepted::DOMAIN,
        TaskResult::DOMAIN,
        Checkpoint::DOMAIN,
        Voucher::DOMAIN,
        Discharge::DOMAIN,
        Receipt::DOMAIN,
        Close::DOMAIN,
    ];
    let set: std::collections::BTreeSet<_> = domains.iter().collect();
    assert_eq!(set.len(), domains.len());
}
