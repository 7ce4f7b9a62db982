//! Brings the outputs of a finished task home: from a stranger's manifest to files in the renter's folder.
//!
//! Nothing in a manifest is trusted. Paths are plain or refused; a link is made only if it stays inside the folder and
//! only after all files are there, so that no file is ever written through one; a file appears whole or not at all.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use souk_protocol::{Hash, is_plain_path};

use crate::{
    client::{Client, ClientError},
    view::{OutputEntry, OutputKind, TaskOutputs},
};

/// What was written, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Written {
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Folders of this machine they are in.
    pub folders: Vec<PathBuf>,
    /// Entries that were left out, each with the reason.
    pub skipped: Vec<String>,
}

/// Why outputs are not home.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The node did not give a file.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// This machine refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// The manifest names the same path twice, or a path below a file.
    #[error("the manifest is not sound: {0:?} lies below something that is no folder")]
    Manifest(String),
}

/// Writes the outputs of one task where its job file says. `into` replaces that folder, with the index of the task below
/// it.
///
/// # Errors
/// [`OutputError`]; files that were written before it stay, each whole.
pub async fn write(client: &Client, outputs: &TaskOutputs, into: Option<&Path>) -> Result<Written, OutputError> {
    let mut written = Written::default();
    for folder in &outputs.folders {
        let root = match (into, &folder.to) {
            (Some(into), _) => into.join(outputs.index.to_string()),
            (None, Some(to)) => PathBuf::from(to),
            (None, None) => continue,
        };
        let plan = Plan::new(&folder.path, &outputs.entries, &mut written.skipped);
        plan.make_folders(&root)?;
        for file in &plan.files {
            let len = bring(client, &root, file).await?;
            written.files = written.files.saturating_add(1);
            written.bytes = written.bytes.saturating_add(len);
        }
        plan.make_links(&root, &mut written.skipped)?;
        if !written.folders.contains(&root) {
            written.folders.push(root);
        }
    }
    Ok(written)
}

/// What is to be made below one folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    folders: Vec<String>,
    files: Vec<PlannedFile>,
    links: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
struct PlannedFile {
    path: String,
    hash: Hash,
    executable: bool,
}

impl Plan {
    /// Sorts the entries below the guest folder `guest`; what cannot be made goes to `skipped`.
    fn new(guest: &str, entries: &[OutputEntry], skipped: &mut Vec<String>) -> Self {
        let guest = guest.trim_matches('/');
        let mut plan = Self::default();
        for entry in entries {
            if !is_plain_path(&entry.path) {
                skipped.push(format!("{:?}: not a plain path", entry.path));
                continue;
            }
            let Some(path) = below(guest, &entry.path) else { continue };
            match &entry.what {
                OutputKind::Folder if path.is_empty() => {}
                OutputKind::Folder => plan.folders.push(path),
                OutputKind::File { hash, executable, .. } => {
                    // An output that is one file keeps its name.
                    let path = if path.is_empty() { name_of(&entry.path) } else { path };
                    plan.files.push(PlannedFile { path, hash: *hash, executable: *executable });
                }
                OutputKind::Link { target } if !path.is_empty() && stays_inside(&path, target) => {
                    plan.links.push((path, target.clone()));
                }
                OutputKind::Link { target } => {
                    skipped.push(format!("{}: a link out of the outputs to {target:?}", entry.path));
                }
                OutputKind::Skipped { reason } => skipped.push(format!("{}: {reason}", entry.path)),
            }
        }
        plan
    }

    fn make_folders(&self, root: &Path) -> Result<(), OutputError> {
        fs::create_dir_all(root).map_err(io_error(root))?;
        for folder in &self.folders {
            make_folder(root, folder)?;
        }
        Ok(())
    }

    /// Links come last: nothing is written through them.
    fn make_links(&self, root: &Path, skipped: &mut Vec<String>) -> Result<(), OutputError> {
        for (path, target) in &self.links {
            let place = root.join(path);
            if let Some((folder, _)) = path.rsplit_once('/') {
                make_folder(root, folder)?;
            }
            match fs::symlink_metadata(&place) {
                // A link of an earlier run makes room for the new one; anything else is the user's.
                Ok(meta) if meta.is_symlink() => fs::remove_file(&place).map_err(io_error(&place))?,
                Ok(_) => {
                    skipped.push(format!("{path}: a link, but something else is there"));
                    continue;
                }
                Err(_) => {}
            }
            symlink(target, &place).map_err(io_error(&place))?;
        }
        Ok(())
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OutputError + '_ {
    move |source| OutputError::Io { path: path.to_owned(), source }
}

/// The path below the guest folder; empty for the folder itself.
fn below(guest: &str, path: &str) -> Option<String> {
    let rest = path.strip_prefix(guest)?;
    if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix('/').map(str::to_owned) }
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Whether a link at `path` with this relative target ends inside the folder.
fn stays_inside(path: &str, target: &str) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return false;
    }
    let mut depth = path.split('/').count().saturating_sub(1);
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => depth = depth.saturating_add(1),
        }
    }
    true
}

/// Makes a folder below the root, part by part: none of them may be a link, which would lead elsewhere.
fn make_folder(root: &Path, folder: &str) -> Result<PathBuf, OutputError> {
    let mut path = root.to_owned();
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            // Left by an earlier run; the new outputs have a folder of this name.
            Ok(meta) if meta.is_symlink() => {
                fs::remove_file(&path).map_err(io_error(&path))?;
                fs::create_dir(&path).map_err(io_error(&path))?;
            }
            Ok(_) => return Err(OutputError::Manifest(path.to_string_lossy().into_owned())),
            Err(_) => fs::create_dir(&path).map_err(io_error(&path))?,
        }
    }
    Ok(path)
}

async fn bring(client: &Client, root: &Path, file: &PlannedFile) -> Result<u64, OutputError> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let folder = make_folder(root, folder)?;
    let place = folder.join(name);
    let temp = tempfile::Builder::new().prefix(".souk-").tempfile_in(&folder).map_err(io_error(&place))?;
    let (handle, temp) = temp.into_parts();
    let mut handle = tokio::fs::File::from_std(handle);
    let len = client.get_blob(&file.hash, &mut handle, &place).await?;
    let mode = if file.executable { 0o755 } else { 0o644 };
    let finish = || {
        fs::set_permissions(&temp, fs::Permissions::from_mode(mode))?;
        // A link left by an earlier run is replaced, not followed.
        temp.persist(&place).map_err(|error| error.error)
    };
    finish().map_err(io_error(&place))?;
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, what: OutputKind) -> OutputEntry {
        OutputEntry { path: path.to_owned(), what }
    }

    fn file(path: &str) -> OutputEntry {
        entry(path, OutputKind::File { hash: Hash([0; 32]), len: crate::view::Big(0), executable: false })
    }

    fn link(path: &str, target: &str) -> OutputEntry {
        entry(path, OutputKind::Link { target: target.to_owned() })
    }

    #[test]
    fn escapes_are_left_out_and_named() {
        let entries = [
            file("out/model-000.bin"),
            link("out/latest.bin", "model-000.bin"),
            link("out/evil", "/etc/passwd"),
            link("out/sub/up", "../model-000.bin"),
            link("out/sub/out", "../../x"),
            file("out/../../x"),
            file("/abs"),
            file("outside/x"),
            entry("out/pipe", OutputKind::Skipped { reason: "a FIFO".to_owned() }),
            entry("out/sub", OutputKind::Folder),
        ];
        let mut skipped = Vec::new();
        let plan = Plan::new("/out", &entries, &mut skipped);
        let files: Vec<&str> = plan.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["model-000.bin"]);
        assert_eq!(plan.folders, ["sub"]);
        let links: Vec<&str> = plan.links.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(links, ["latest.bin", "sub/up"]);
        assert_eq!(
            skipped,
            [
                "out/evil: a link out of the outputs to \"/etc/passwd\"",
                "out/sub/out: a link out of the outputs to \"../../x\"",
                "\"out/../../x\": not a plain path",
                "\"/abs\": not a plain path",
                "out/pipe: a FIFO",
            ]
        );
    }

    #[test]
    fn links_come_last_and_never_lead_a_file_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (folder.path().join("root"), folder.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        // An earlier run left a link where now a folder is meant to be.
        fs::create_dir(&root).unwrap();
        symlink(&elsewhere, root.join("a")).unwrap();
        assert_eq!(make_folder(&root, "a/b").unwrap(), root.join("a/b"));
        assert!(fs::symlink_metadata(root.join("a")).unwrap().is_dir());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn a_path_below_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        assert!(matches!(make_folder(folder.path(), "a/b"), Err(OutputError::Manifest(_))));
    }

    #[test]
    fn links_are_replaced_but_files_of_the_user_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let plan =
            Plan { links: vec![("l".to_owned(), "x".to_owned()), ("f".to_owned(), "x".to_owned())], ..Plan::default() };
        fs::write(folder.path().join("f"), "mine").unwrap();
        symlink("old", folder.path().join("l")).unwrap();
        let mut skipped = Vec::new();
        plan.make_links(folder.path(), &mut skipped).unwrap();
        assert_eq!(fs::read_link(folder.path().join("l")).unwrap(), Path::new("x"));
        assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"mine");
        assert_eq!(skipped, ["f: a link, but something else is there"]);
    }

    #[test]
    fn an_output_that_is_one_file_keeps_its_name() {
        let plan = Plan::new("/out/model.bin", &[file("out/model.bin"), file("out/model.bin2")], &mut Vec::new());
        let files: Vec<&str> = plan.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["model.bin"]);
    }

    proptest::proptest! {
        #[test]
        fn no_link_that_is_made_leads_out(path in "[a-c](/[a-c]){0,3}", target in "[a-c./]{1,12}") {
            if stays_inside(&path, &target) {
                let folder = Path::new("/root").join(&path);
                let mut place = folder.parent().unwrap().to_owned();
                for part in Path::new(&target).components() {
                    match part {
                        std::path::Component::ParentDir => { place.pop(); }
                        std::path::Component::Normal(name) => place.push(name),
                        _ => {}
                    }
                    proptest::prop_assert!(place.starts_with("/root"), "{}", place.display());
                }
            }
        }
    }
}
