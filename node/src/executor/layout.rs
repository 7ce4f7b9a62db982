//! Inputs laid out in an attempt's folder, where the guest sees them.

use std::{fs, io, path::Path};

use souk_protocol::is_plain_path;

use crate::store::Pin;

/// Puts each file at its guest path below `root`: by a hard link where the file systems allow it, else by a copy. The
/// folder is read-only for the guest, whatever the mode says.
///
/// Blocks on the disk.
///
/// # Errors
/// A target that is not plain or is used twice, or the disk's error; for people.
pub(super) fn lay_out(root: &Path, files: &[(String, Pin)]) -> Result<(), String> {
    for (target, pin) in files {
        let relative = target.trim_start_matches('/');
        if !is_plain_path(relative) {
            return Err(format!("input target {target:?} is not a plain absolute path"));
        }
        let path = root.join(relative);
        let put = || -> io::Result<()> {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match fs::hard_link(pin.path(), &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                Err(_) => fs::copy(pin.path(), &path).map(|_| ()),
                Ok(()) => Ok(()),
            }
        };
        put().map_err(|error| format!("input {target}: {error}"))?;
    }
    Ok(())
}
