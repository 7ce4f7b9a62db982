//! Names and references: jobs, variables, hosts, regions, images.

use super::paths::{Refusal, plain};

/// Longest name of a job and of a label.
pub(super) const MAX_NAME: usize = 63;
/// Longest name of a variable.
const MAX_VARIABLE: usize = 255;
/// Longest reference of an image.
const MAX_IMAGE: usize = 512;

/// Variables that change how programs are loaded or what a GPU runtime grants.
const BLOCKED_PREFIXES: &[&str] = &["LD_", "DYLD_", "NVIDIA_", "SOUK_"];
const BLOCKED: &[&str] = &["GLIBC_TUNABLES"];
/// Parts of names whose values should not lie in a file.
const SECRET_PARTS: &[&str] =
    &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL"];

fn refuse<T>(problem: &str, hint: &str) -> Result<T, Refusal> {
    Err((problem.to_owned(), hint.to_owned()))
}

/// A lower-case letter, then letters, digits and "-".
pub(super) fn job_name(name: &str) -> Result<(), Refusal> {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if starts && rest && name.len() <= MAX_NAME {
        return Ok(());
    }
    refuse("not a name", "a name is a lower-case letter, then lower-case letters, digits and \"-\", at most 63 in all")
}

pub(super) fn label_name(name: &str) -> Result<(), Refusal> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
    if starts && rest && name.len() <= MAX_NAME {
        return Ok(());
    }
    refuse(
        "not a name of a label",
        "letters, digits, \".\", \"_\", \"/\" and \"-\", at most 63, a letter or digit first",
    )
}

/// A name of a variable or a secret: the shell's rule, without those that are blocked.
pub(super) fn variable(name: &str) -> Result<(), Refusal> {
    if !is_identifier(name) || name.len() > MAX_VARIABLE {
        return refuse("not a name of a variable", "letters, digits and \"_\", no digit first");
    }
    let upper = name.to_ascii_uppercase();
    if BLOCKED_PREFIXES.iter().any(|prefix| upper.starts_with(prefix)) || BLOCKED.contains(&upper.as_str()) {
        return refuse(
            "this variable is never taken from a job: it is the loader's, the GPU runtime's or souk's own",
            "leave it out",
        );
    }
    Ok(())
}

pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| upper.contains(part))
}

/// An ISO code or a group of the network file.
pub(super) fn region(name: &str) -> Result<(), Refusal> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if starts && rest && (2..=16).contains(&name.len()) {
        return Ok(());
    }
    refuse("not a region", "an ISO code or a group of the network file, e.g. \"de\", \"us-east\"")
}

/// `name` or `name:port`.
pub(super) fn host(text: &str) -> Result<(), Refusal> {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let name_ok = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|part| {
            !part.is_empty()
                && part.len() <= 63
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        });
    let port_ok = port.is_none_or(|port| !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port > 0));
    if name_ok && port_ok {
        return Ok(());
    }
    refuse("not a host", "e.g. \"pypi.org\" or \"pypi.org:443\"; no address, path or \"*\"")
}

/// An image by digest or by an exact tag.
pub(super) fn image(reference: &str) -> Result<(), Refusal> {
    plain(reference)?;
    let by_digest = "write \"name@sha256:..\" or a tag that does not move";
    if reference.len() > MAX_IMAGE || !reference.chars().all(|c| c.is_ascii_alphanumeric() || "._/:@-".contains(c)) {
        return refuse("not a reference of an image", "e.g. \"docker.io/library/python:3.12.8\"");
    }
    let (name, digest) = reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last "/" is the registry's port.
    let (folder, last) = name.rsplit_once('/').map_or(("", name), |(folder, last)| (folder, last));
    let (repository, tag) = last.split_once(':').map_or((last, None), |(repository, tag)| (repository, Some(tag)));
    let empty_part = name.contains('/') && folder.split('/').any(str::is_empty);
    if repository.is_empty() || empty_part {
        return refuse("not a reference of an image", "e.g. \"docker.io/library/python:3.12.8\"");
    }
    if tag.is_some_and(|tag| tag.is_empty() || tag.contains(':') || tag.len() > 128) {
        return refuse("not a tag", by_digest);
    }
    match digest {
        Some(digest) => {
            let hex = digest.strip_prefix("sha256:").unwrap_or("");
            if hex.len() == 64 && hex.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)) {
                return Ok(());
            }
            refuse("not a digest", "a digest is \"sha256:\" and 64 hexadecimal digits in lower case")
        }
        None if tag == Some("latest") => refuse(":latest is another image every day", by_digest),
        None if tag.is_none() => refuse("without tag or digest this means :latest, another image every day", by_digest),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_m24_names_follow_one_pattern() {
        for name in ["a", "sweep", "my-job-2", &"a".repeat(63)] {
            assert_eq!(job_name(name), Ok(()), "{name}");
        }
        for name in ["", "1job", "-job", "Job", "my_job", "my job", "job\n", "jöb", &"a".repeat(64)] {
            let hint = job_name(name).unwrap_err().1;
            assert!(hint.contains("a lower-case letter, then lower-case letters, digits and \"-\""), "{name:?}");
        }
    }

    #[test]
    fn case_m18_an_image_that_ends_in_a_newline_is_refused() {
        let (problem, hint) = image("docker.io/x/y:1.2gvmi\n").unwrap_err();
        assert_eq!(
            (problem.as_str(), hint.as_str()),
            ("a space or line end at its start or end is not allowed", "remove it")
        );
    }

    #[test]
    fn images_have_a_digest_or_an_exact_tag() {
        let digest = "0123456789abcdef".repeat(4);
        for reference in [
            format!("docker.io/library/python@sha256:{digest}"),
            format!("python:3.12@sha256:{digest}"),
            "localhost:5000/x/y:v1".to_owned(),
            "python:3.12.8".to_owned(),
        ] {
            assert_eq!(image(&reference), Ok(()), "{reference}");
        }
        for reference in [
            "python".to_owned(),
            "python:latest".to_owned(),
            "localhost:5000/python".to_owned(),
            "python:".to_owned(),
            "python@sha256:abc".to_owned(),
            format!("python@md5:{digest}"),
            format!("python@sha256:{}", digest.to_uppercase()),
            "/python:1".to_owned(),
            "a//b:1".to_owned(),
            ":1".to_owned(),
            "py thon:1".to_owned(),
            "https://x/y:1".to_owned(),
            " python:1".to_owned(),
        ] {
            assert!(image(&reference).is_err(), "{reference:?}");
        }
        assert!(image("python:latest").unwrap_err().0.contains(":latest"));
    }

    #[test]
    fn dangerous_variables_are_blocked_by_name() {
        for name in
            ["LD_PRELOAD", "LD_LIBRARY_PATH", "ld_preload", "NVIDIA_VISIBLE_DEVICES", "SOUK_TASK", "GLIBC_TUNABLES"]
        {
            assert!(variable(name).unwrap_err().0.contains("never taken from a job"), "{name}");
        }
        for name in ["", "A=B", "A\u{0}", "1A", "A-B", "A B", "É"] {
            assert!(variable(name).unwrap_err().0.contains("not a name"), "{name:?}");
        }
        for name in ["FOO", "_x", "path2", "OLD_LD"] {
            assert_eq!(variable(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn hosts_are_names_with_a_port_at_most() {
        for text in ["pypi.org", "pypi.org:443", "a-b.c"] {
            assert_eq!(host(text), Ok(()), "{text}");
        }
        for text in ["", "*.org", "http://x", "x:0", "x:+1", "x:99999", "x/y", "-x", "x..y", "[::1]"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
