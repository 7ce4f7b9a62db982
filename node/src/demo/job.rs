//! The jobs that come with the program: the examples, so that the demo needs no checkout.

use std::{io, path::Path};

/// A job of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoJob {
    /// Its name, as in `--job`.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its job file.
    pub file: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

const SWEEP: DemoJob = DemoJob {
    name: "sweep",
    about: "trains twelve small classifiers on handwritten digits, one a task",
    file: include_str!("../../../examples/sweep/job.toml"),
    files: &[
        ("sweep.wasm", include_bytes!("../../../examples/sweep/sweep.wasm")),
        ("data/digits.csv", include_bytes!("../../../examples/sweep/data/digits.csv")),
    ],
};

const HELLO: DemoJob = DemoJob {
    name: "hello",
    about: "says hello",
    file: include_str!("../../../examples/hello/job.toml"),
    files: &[("hello.wasm", include_bytes!("../../../examples/hello/hello.wasm"))],
};

impl DemoJob {
    /// Every job that comes with the program.
    pub const ALL: &'static [Self] = &[SWEEP, HELLO];

    /// The job of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|job| job.name == name)
    }

    /// Writes the job and its files into `folder`.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let files = self.files.iter().copied().chain([("job.toml", self.file.as_bytes())]);
        for (name, bytes) in files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demo_job_is_a_valid_job_whose_files_are_there() {
        for job in DemoJob::ALL {
            let folder = tempfile::tempdir().unwrap();
            job.write(folder.path()).unwrap();
            let format = souk_protocol::job_file::Format::Toml;
            let parsed = souk_protocol::job_file::parse(job.file.as_bytes(), format).unwrap();
            let resolved = crate::submit::resolve(&parsed.file, folder.path(), &Default::default());
            assert!(resolved.is_ok(), "{}: {:?}", job.name, resolved.err());
        }
    }
}
