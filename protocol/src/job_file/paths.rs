//! Paths inside a task and on the renter's machine.

/// Longest path of a task, in bytes; the wire has the same limit.
pub(super) const MAX_PATH: usize = 1_024;
/// Where a task writes its results.
pub(super) const OUT: &str = "/out";
/// Where a task writes its checkpoints.
pub(super) const CKPT: &str = "/ckpt";

/// Folders of a task that are the system's or its runtime's.
const SYSTEM: &[&str] = &[
    "/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr",
];
/// Folders of this machine that are no data.
const HOST: &[&str] = &["/proc", "/sys", "/dev"];

/// A problem and what to write instead.
pub(super) type Refusal = (String, String);

/// Whether `path` is `folder` or lies in it.
pub(super) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path that a task sees. Placeholders have been replaced by a plain name.
pub(super) fn guest(path: &str) -> Result<(), Refusal> {
    let refuse = |problem: &str, hint: &str| Err((problem.to_owned(), hint.to_owned()));
    plain(path)?;
    if path.len() > MAX_PATH {
        return refuse("the path is too long", "at most 1024 bytes");
    }
    let Some(relative) = path.strip_prefix('/') else {
        return refuse("paths in a task start with \"/\"", "e.g. \"/in/data.csv\"");
    };
    if relative.is_empty() {
        return refuse("the root folder can't be used", "e.g. \"/in\"");
    }
    if relative.split('/').any(|part| part == "..") {
        return refuse("\"..\" is not allowed", "write the path out");
    }
    if relative.split('/').any(|part| part.is_empty() || part == ".") {
        return refuse(
            "an empty part or \".\" is not allowed in a path",
            "write it without \"//\", \"/./\" and a \"/\" at the end",
        );
    }
    Ok(())
}

/// Where an input may appear.
pub(super) fn target(path: &str) -> Result<(), Refusal> {
    guest(path)?;
    if let Some(folder) = SYSTEM.iter().find(|folder| is_within(path, folder)) {
        return Err((format!("{folder} belongs to the system"), "use a folder of your own, e.g. \"/in\"".to_owned()));
    }
    if let Some(folder) = [OUT, CKPT].iter().find(|folder| is_within(path, folder)) {
        return Err((format!("inputs are read-only, {folder} is for writing"), "e.g. \"/in\"".to_owned()));
    }
    Ok(())
}

/// A path that must be `folder` or lie in it.
pub(super) fn inside(path: &str, folder: &str) -> Result<(), Refusal> {
    guest(path)?;
    if is_within(path, folder) {
        return Ok(());
    }
    Err((format!("must be {folder} or lie in it"), format!("e.g. \"{folder}\"")))
}

/// A file or folder of this machine that is read.
pub(super) fn source(path: &str) -> Result<(), Refusal> {
    local(path)?;
    if path.trim_end_matches('/').is_empty() {
        return Err(("the root folder can't be an input".to_owned(), "name the folder that is needed".to_owned()));
    }
    if let Some(folder) = HOST.iter().find(|folder| is_within(path, folder)) {
        return Err((format!("{folder} is no data"), "name a file or folder".to_owned()));
    }
    if path.ends_with("docker.sock") || path.ends_with("podman.sock") {
        return Err(("the engine's socket is never given to a job".to_owned(), "leave it out".to_owned()));
    }
    Ok(())
}

/// Any path of this machine.
pub(super) fn local(path: &str) -> Result<(), Refusal> {
    plain(path)?;
    if path.len() > MAX_PATH {
        return Err(("the path is too long".to_owned(), "at most 1024 bytes".to_owned()));
    }
    Ok(())
}

/// Text on one line that does not start or end in a space.
pub(super) fn plain(text: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(("the value is empty".to_owned(), "write it or leave the field out".to_owned()));
    }
    if text.trim() != text {
        return Err(("a space or line end at its start or end is not allowed".to_owned(), "remove it".to_owned()));
    }
    if text.chars().any(char::is_control) {
        return Err(("control characters are not allowed".to_owned(), "remove them".to_owned()));
    }
    Ok(())
}

/// Whether a value may become part of a path: then no expansion leaves its folder.
pub(super) fn is_safe_in_path(value: &str) -> bool {
    let only_dots = value.chars().all(|c| c == '.');
    !only_dots && !value.chars().any(|c| c == '/' || c == '\\' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_absolute_plain_and_outside_the_system() {
        for path in ["/in", "/in/digits.csv", "/data/a b", "/procedures", "/output", "/devices/x"] {
            assert_eq!(target(path), Ok(()), "{path}");
        }
        for path in [
            "",
            "/",
            "in",
            "./in",
            "/in/",
            "/in//x",
            "/in/./x",
            "/in/../etc",
            "/..",
            "/proc",
            "/proc/self",
            "/sys",
            "/dev/sda",
            "/var/run/docker.sock",
            "/etc/passwd",
            "/usr/bin/x",
            "/out",
            "/out/x",
            "/ckpt",
            "/in\n",
            " /in",
            "/in\u{0}x",
        ] {
            assert!(target(path).is_err(), "{path:?}");
        }
        assert!(target(&format!("/{}", "x".repeat(1_024))).is_err());
    }

    #[test]
    fn outputs_lie_in_the_output_folder() {
        assert_eq!(inside("/out", OUT), Ok(()));
        assert_eq!(inside("/out/model", OUT), Ok(()));
        for path in ["/outer", "/in", "out", "/out/../etc", "/out/", "/"] {
            assert!(inside(path, OUT).is_err(), "{path}");
        }
    }

    #[test]
    fn sources_are_never_the_system_or_a_socket() {
        assert_eq!(source("../data/x.csv"), Ok(()));
        assert_eq!(source("/home/me/data"), Ok(()));
        for path in ["/", "//", "/proc", "/proc/1/environ", "/dev/kvm", "/sys/kernel", "/run/docker.sock", "", "x\n"] {
            assert!(source(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn values_in_paths_never_leave_their_folder() {
        assert!(is_safe_in_path("0.1") && is_safe_in_path(".x"));
        for value in ["", ".", "..", "...", "a/b", "a\\b", "a\nb"] {
            assert!(!is_safe_in_path(value), "{value:?}");
        }
    }
}
