//! From a job file to what a node takes: the spec, and the local files it names by hash.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
};

use souk_protocol::{
    Array, Hash, Input, InputFile, JobFile, JobSpec, List, MAX_INPUT_FILES, Market, Module, Output, Requirement, Retry,
    Runtime, Sla, Terms, Text,
    job_file::{InputSection, InputSource, Program, TaskVars},
};

/// Most folders below each other among the inputs.
const MAX_DEPTH: usize = 64;

/// Why a job cannot be submitted as it is.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A file or folder cannot be read.
    #[error("{field}: cannot read {}: {source}", path.display())]
    Io {
        /// The field that names it.
        field: String,
        /// Which.
        path: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// A file or folder cannot be an input.
    #[error("{field}: {}: {problem}", path.display())]
    Refused {
        /// The field that names it.
        field: String,
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// Something of the job is larger than a job can be.
    #[error("{field}: {problem}")]
    Large {
        /// The field.
        field: String,
        /// The limit.
        problem: String,
    },
}

/// A file of this machine that the job needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its BLAKE3.
    pub hash: Hash,
    /// Its length, in bytes.
    pub len: u64,
}

/// A job whose local paths have become hashes.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The spec.
    pub spec: JobSpec,
    /// Its files, each content once.
    pub files: Vec<LocalFile>,
}

/// Resolves a valid job file whose relative paths start at `folder`, an absolute path. `blobs` has the lengths of inputs
/// named by hash. Reads and hashes every file: call it off the runtime.
///
/// # Errors
/// [`SubmitError`] names the field and the path.
pub fn resolve(file: &JobFile, folder: &Path, blobs: &BTreeMap<Hash, u64>) -> Result<Resolved, SubmitError> {
    let tasks: Vec<TaskVars> = file.tasks().collect();
    let mut walk = Walk { files: BTreeMap::new(), entries: 0 };
    let module = module(file, folder, &mut walk)?;
    let mut inputs = Vec::new();
    for (index, input) in file.inputs.iter().enumerate() {
        inputs.push(self::input(&format!("inputs[{index}].source"), input, &tasks, folder, blobs, &mut walk)?);
    }
    let spec = JobSpec {
        name: text("name", &file.name)?,
        labels: file.labels.clone(),
        module,
        args: file.runtime.args.clone(),
        env: file.runtime.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        inputs,
        outputs: file.outputs.iter().map(|output| self::output(&output.path, &output.to, folder)).collect(),
        requirement: requirement(file)?,
        terms: terms(file),
        market: market(file),
        sla: sla(file),
        retry: Retry { attempts: file.retry.attempts, on: file.retry.on.clone() },
        array: Array {
            tasks: tasks.into_iter().map(|task| task.vars).collect(),
            max_parallel: file.array.max_parallel,
            // Without a limit the job ends when all tasks have.
            max_failures: file.array.max_failures.unwrap_or(u32::MAX),
        },
    };
    Ok(Resolved { spec, files: walk.files.into_values().collect() })
}

/// Hashes among the inputs whose lengths [`resolve`] needs.
#[must_use]
pub fn blobs_named(file: &JobFile) -> Vec<Hash> {
    let hash = |input: &InputSection| if let InputSource::Blob(hash) = &input.source { Some(*hash) } else { None };
    file.inputs.iter().filter_map(hash).collect()
}

fn text<const N: usize>(field: &str, value: &str) -> Result<Text<N>, SubmitError> {
    Text::try_from(value).map_err(|error| SubmitError::Large { field: field.to_owned(), problem: error.to_string() })
}

fn module(file: &JobFile, folder: &Path, walk: &mut Walk) -> Result<Module, SubmitError> {
    let field = "runtime.wasm";
    let Program::Wasm { path, entry } = &file.runtime.program else {
        let problem = "not available yet: container images, only wasm modules run".to_owned();
        return Err(SubmitError::Large { field: "runtime.image".to_owned(), problem });
    };
    let path = folder.join(path);
    let found = walk.file(field, &path)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Module { hash: found.hash, len: found.len, name: text(field, &name)?, entry: text("runtime.entry", entry)? })
}

fn input(
    field: &str,
    input: &InputSection,
    tasks: &[TaskVars],
    folder: &Path,
    blobs: &BTreeMap<Hash, u64>,
    walk: &mut Walk,
) -> Result<Input, SubmitError> {
    let refused = |path: &Path, problem: &str| SubmitError::Refused {
        field: field.to_owned(),
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    let mut sources = BTreeMap::new();
    let source = match &input.source {
        InputSource::Path(template) => {
            for task in tasks {
                // The id comes of the spec, which comes of the files: no file can be named by it.
                let expanded =
                    task.expand(template, "{job}").map_err(|error| refused(Path::new(template), &error.to_string()))?;
                if template.contains("{job}") {
                    return Err(refused(Path::new(template), "{job} is known only after the inputs are; use {index}"));
                }
                if let Entry::Vacant(place) = sources.entry(expanded) {
                    let files = walk.input(field, &folder.join(place.key()))?;
                    place.insert(files);
                }
            }
            template.clone()
        }
        InputSource::Blob(hash) => {
            let name = format!("blake3:{hash}");
            let Some(len) = blobs.get(hash) else {
                return Err(refused(Path::new(&name), "this node does not hold it"));
            };
            sources.insert(name.clone(), vec![InputFile { path: String::new(), hash: *hash, len: *len }]);
            name
        }
        InputSource::Https { url, .. } => {
            return Err(refused(Path::new(url), "not available yet: downloads as inputs"));
        }
        InputSource::Job { path, .. } => {
            return Err(refused(Path::new(path), "not available yet: outputs of other jobs as inputs"));
        }
    };
    Ok(Input { target: input.target.clone(), sources, source })
}

/// The folder at home is absolute in the spec, so that the node need not know where the command was given. Braces of
/// the folder's own name are no placeholders.
fn output(path: &str, to: &str, folder: &Path) -> Output {
    let to = if Path::new(to).is_absolute() {
        to.to_owned()
    } else {
        let folder = folder.to_string_lossy().replace('{', "{{");
        format!("{}/{}", folder.trim_end_matches('/'), to.strip_prefix("./").unwrap_or(to))
    };
    Output { path: path.to_owned(), to }
}

fn requirement(file: &JobFile) -> Result<Requirement, SubmitError> {
    let field = "resources.region";
    let regions: Result<Vec<Text<16>>, SubmitError> =
        file.resources.region.iter().map(|region| text(field, region)).collect();
    let regions = List::try_from(regions?)
        .map_err(|error| SubmitError::Large { field: field.to_owned(), problem: error.to_string() })?;
    Ok(Requirement {
        runtime: match file.runtime.program {
            Program::Wasm { .. } => Runtime::Wasm,
            Program::Image { .. } => Runtime::Oci,
        },
        isolation: file.resources.isolation,
        cpu: file.resources.cpu.lo,
        memory: file.resources.memory.lo,
        disk: file.resources.disk.lo,
        gpu: file.resources.gpu.first().cloned(),
        regions,
    })
}

fn terms(file: &JobFile) -> Terms {
    Terms {
        tier: file.market.tier,
        pay: file.market.pay,
        preemptible: file.market.preemptible,
        notice: file.market.notice,
        timeout: file.limits.timeout,
        stop_grace: file.limits.stop_grace,
        stdout: file.limits.stdout,
        offline: file.sla.offline,
        retention: file.sla.retention,
        verify: file.sla.verify,
    }
}

fn market(file: &JobFile) -> Market {
    Market {
        max_rate: file.market.max_price,
        budget: file.market.budget,
        mode: file.market.mode,
        local: file.market.local,
        allow: file.market.allow.clone(),
        deny: file.market.deny.clone(),
    }
}

fn sla(file: &JobFile) -> Sla {
    Sla {
        start_within: file.sla.start_within,
        start_at: file.sla.start_at,
        deadline: file.sla.deadline,
        reliability: file.sla.reliability,
        latency: file.sla.latency,
        loss: file.sla.loss,
    }
}

/// The files found so far.
struct Walk {
    /// By content.
    files: BTreeMap<Hash, LocalFile>,
    entries: usize,
}

impl Walk {
    /// Hashes a regular file; links on the way to it are the user's own choice.
    fn file(&mut self, field: &str, path: &Path) -> Result<LocalFile, SubmitError> {
        let io = |source| SubmitError::Io { field: field.to_owned(), path: path.to_owned(), source };
        let meta = fs::metadata(path).map_err(io)?;
        if !meta.is_file() {
            let problem = "not a regular file".to_owned();
            return Err(SubmitError::Refused { field: field.to_owned(), path: path.to_owned(), problem });
        }
        self.entries = self.entries.saturating_add(1);
        if self.entries > MAX_INPUT_FILES {
            let problem = format!("more than {MAX_INPUT_FILES} files; pack them into one");
            return Err(SubmitError::Large { field: field.to_owned(), problem });
        }
        let mut hasher = blake3::Hasher::new();
        let mut file = File::open(path).map_err(io)?;
        let len = io::copy(&mut file, &mut hasher).map_err(io)?;
        let found = LocalFile { path: path.to_owned(), hash: Hash(*hasher.finalize().as_bytes()), len };
        self.files.entry(found.hash).or_insert_with(|| found.clone());
        Ok(found)
    }

    /// The files of an input: one with an empty path, or those below a folder in order of their paths.
    fn input(&mut self, field: &str, path: &Path) -> Result<Vec<InputFile>, SubmitError> {
        let io = |source| SubmitError::Io { field: field.to_owned(), path: path.to_owned(), source };
        if !fs::metadata(path).map_err(io)?.is_dir() {
            let found = self.file(field, path)?;
            return Ok(vec![InputFile { path: String::new(), hash: found.hash, len: found.len }]);
        }
        let root = path.canonicalize().map_err(io)?;
        let mut found = Vec::new();
        self.folder(field, &root, &root, 0, &mut found)?;
        if found.is_empty() {
            let problem = "the folder has no files".to_owned();
            return Err(SubmitError::Refused { field: field.to_owned(), path: path.to_owned(), problem });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn folder(
        &mut self,
        field: &str,
        root: &Path,
        folder: &Path,
        depth: usize,
        found: &mut Vec<InputFile>,
    ) -> Result<(), SubmitError> {
        let refused = |path: &Path, problem: &str| SubmitError::Refused {
            field: field.to_owned(),
            path: path.to_owned(),
            problem: problem.to_owned(),
        };
        if depth > MAX_DEPTH {
            return Err(refused(folder, "more than 64 folders below each other"));
        }
        let io = |source| SubmitError::Io { field: field.to_owned(), path: folder.to_owned(), source };
        for entry in fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            // A link could take a stranger a file that its owner did not mean to send: only those that stay inside.
            let real = path.canonicalize().map_err(io)?;
            if !real.starts_with(root) {
                return Err(refused(&path, "a link out of the folder; copy what it points to"));
            }
            let meta = fs::symlink_metadata(&path).map_err(io)?;
            let target = if meta.is_symlink() { fs::metadata(&path).map_err(io)? } else { meta.clone() };
            if target.is_dir() && meta.is_symlink() {
                return Err(refused(&path, "a link to a folder; copy what it points to"));
            }
            if target.is_dir() {
                self.folder(field, root, &path, depth.saturating_add(1), found)?;
                continue;
            }
            if !target.is_file() {
                return Err(refused(&path, "neither a file nor a folder; move it elsewhere"));
            }
            let below = relative(root, &path).ok_or_else(|| refused(&path, "its name is no UTF-8 text"))?;
            let file = self.file(field, &path)?;
            found.push(InputFile { path: below, hash: file.hash, len: file.len });
        }
        Ok(())
    }
}

/// The path below a folder with `/` between its parts.
fn relative(root: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(root).ok()?;
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    };
    let parts: Option<Vec<String>> = below.components().map(part).collect();
    Some(parts?.join("/"))
}

#[cfg(test)]
mod tests;
