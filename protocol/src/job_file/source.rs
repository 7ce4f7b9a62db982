//! Where an input comes from: a path, `blake3:HASH`, `https://..#blake3:HASH`, `job:ID/INDEX/PATH`.

use super::paths::{self, Refusal};
use super::sections::InputSource;
use crate::id::Hash;

pub(super) fn input_source(text: &str) -> Result<InputSource, Refusal> {
    paths::plain(text)?;
    if let Some(hash) = text.strip_prefix("blake3:") {
        return Ok(InputSource::Blob(blake3_hash(hash)?));
    }
    if let Some(rest) = text.strip_prefix("job:") {
        return job_output(rest);
    }
    if text.starts_with("https://") {
        let Some((url, hash)) = text.split_once("#blake3:") else {
            return Err((
                "a download needs its hash, so that everybody gets the same bytes".to_owned(),
                "write \"https://host/file#blake3:HASH\"".to_owned(),
            ));
        };
        if url.len() > 2_048 || url.contains(char::is_whitespace) || url.len() <= "https://".len() {
            return Err(("not an address".to_owned(), "e.g. \"https://host/file#blake3:HASH\"".to_owned()));
        }
        return Ok(InputSource::Https { url: url.to_owned(), hash: blake3_hash(hash)? });
    }
    // "s3:", "http:", "file:": a word of letters before the colon is meant as a scheme, never as a path.
    let scheme = text
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|scheme| scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    if scheme.is_some() {
        return Err((
            "an input is a path, blake3:HASH, https://..#blake3:HASH or job:ID/INDEX/PATH".to_owned(),
            "for a file with a colon in its name write \"./name\"".to_owned(),
        ));
    }
    paths::source(text)?;
    Ok(InputSource::Path(text.to_owned()))
}

/// 64 hexadecimal digits, as `b3sum` prints them, or 52 characters of base32, as souk does.
fn blake3_hash(text: &str) -> Result<Hash, Refusal> {
    let from_hex = || {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        <[u8; 32]>::try_from(bytes).ok().map(Hash)
    };
    text.parse()
        .ok()
        .or_else(from_hex)
        .ok_or_else(|| ("not a BLAKE3 hash".to_owned(), "64 hexadecimal digits, or 52 characters of base32".to_owned()))
}

fn job_output(rest: &str) -> Result<InputSource, Refusal> {
    let form = || "write \"job:ID/INDEX/PATH\"".to_owned();
    let mut parts = rest.splitn(3, '/');
    let (Some(job), Some(index), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(("the output of a job needs its id, task and path".to_owned(), form()));
    };
    let Ok(job) = job.parse() else {
        return Err(("not the id of a job".to_owned(), form()));
    };
    let is_placeholder = index.starts_with('{') && index.ends_with('}');
    if !is_placeholder && (index.parse::<u32>().is_err() || index.starts_with('+')) {
        return Err(("not the index of a task".to_owned(), form()));
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(("the path lies below the output folder, without \"..\"".to_owned(), form()));
    }
    Ok(InputSource::Job { job, index: index.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;

    #[test]
    fn sources_are_told_apart_by_their_scheme() {
        let hash = Hash([0xab; 32]);
        let hex = "ab".repeat(32);
        assert_eq!(input_source("./a.csv"), Ok(InputSource::Path("./a.csv".to_owned())));
        assert_eq!(input_source("./a:b.csv"), Ok(InputSource::Path("./a:b.csv".to_owned())));
        assert_eq!(input_source(&format!("blake3:{hash}")), Ok(InputSource::Blob(hash)));
        assert_eq!(input_source(&format!("blake3:{hex}")), Ok(InputSource::Blob(hash)));
        let url = "https://example.org/a.csv".to_owned();
        assert_eq!(input_source(&format!("{url}#blake3:{hex}")), Ok(InputSource::Https { url, hash }));
        let job = JobId([7; 32]);
        let expected = InputSource::Job { job, index: "{index}".to_owned(), path: "model/w.bin".to_owned() };
        assert_eq!(input_source(&format!("job:{job}/{{index}}/model/w.bin")), Ok(expected));
    }

    #[test]
    fn unsafe_or_unknown_sources_are_refused() {
        let job = JobId([7; 32]);
        for text in [
            "http://x/y".to_owned(),
            "https://x/y".to_owned(),
            "https://#blake3:".to_owned(),
            "s3://bucket/x".to_owned(),
            "file:///etc/passwd".to_owned(),
            "blake3:abc".to_owned(),
            format!("job:{job}"),
            format!("job:{job}/x/y"),
            format!("job:{job}/0/../y"),
            format!("job:{job}/0/"),
            "job:abc/0/x".to_owned(),
            "/".to_owned(),
            "/proc/self/environ".to_owned(),
            "/var/run/docker.sock".to_owned(),
            "a\n".to_owned(),
            String::new(),
        ] {
            assert!(input_source(&text).is_err(), "{text:?}");
        }
    }
}
