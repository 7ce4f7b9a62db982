//! The bytes of each signed document, its hash and its signature. `docs/protocol.md` prints the same: a change here is
//! a break of the wire format. `SOUK_WRITE_GOLDEN=1` writes the section anew.

use data_encoding::HEXLOWER;
use souk_protocol::{Document, Key, Signed, Signer, codec};

use crate::samples;

const BEGIN: &str = "<!-- golden bytes: written by protocol/tests/it/golden.rs -->\n";
const END: &str = "<!-- end of golden bytes -->\n";

fn vector<T: Document>(name: &str, document: &T, key: &Key) -> String {
    let payload = codec::encode(document, T::MAX_LEN).unwrap();
    let verified = Signed::sign(document, key).unwrap();
    let bytes = codec::encode(verified.signed(), T::MAX_LEN + 256).unwrap();
    let signature = &bytes[bytes.len() - 64..];
    assert_eq!(&bytes[8..8 + payload.len()], payload, "{name}: the payload stands as it is");
    assert_eq!(&bytes[8 + payload.len()..bytes.len() - 64], key.id().as_bytes(), "{name}: then the signer");
    format!(
        "### {name}\n\nDomain `{}`, at most {} bytes.\n\n```text\npayload   {}\nhash      {}\nsigner    {}\nsignature {}\n```\n\n",
        T::DOMAIN,
        T::MAX_LEN,
        HEXLOWER.encode(&payload),
        HEXLOWER.encode(verified.hash().as_bytes()),
        HEXLOWER.encode(key.id().as_bytes()),
        HEXLOWER.encode(signature),
    )
}

fn vectors() -> String {
    let (renter, provider) = (samples::renter(), samples::provider());
    [
        vector("Offer", &samples::offer(), &provider),
        vector("Announcement", &samples::announcement(), &renter),
        vector("Bid", &samples::bid(), &provider),
        vector("Tally", &samples::tally(), &renter),
        vector("Award", &samples::award(), &renter),
        vector("Accepted", &samples::accepted(), &provider),
        vector("TaskResult", &samples::result(), &provider),
        vector("Checkpoint", &samples::checkpoint(), &provider),
        vector("Voucher", &samples::voucher(), &renter),
        vector("Receipt", &samples::receipt(), &provider),
        vector("Close", &samples::close(), &provider),
        vector("Discharge", &samples::discharge(), &provider),
    ]
    .concat()
}

#[test]
fn documents_have_the_bytes_that_the_protocol_page_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the section of golden bytes");
    let (printed, after) = rest.split_once(END).expect("the section ends");
    let vectors = vectors();
    if std::env::var_os("SOUK_WRITE_GOLDEN").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{vectors}{END}{after}")).unwrap();
        return;
    }
    for (printed, computed) in printed.lines().zip(vectors.lines()) {
        assert_eq!(printed, computed);
    }
    assert_eq!(printed, vectors);
}
