use std::os::unix::fs::symlink;

use souk_protocol::job_file::{self, Format};

use super::*;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.wasm"), b"\0asm").unwrap();
    folder
}

fn job(rest: &str) -> JobFile {
    let text = format!("version = 1\nname = \"t\"\n[runtime]\nwasm = \"./m.wasm\"\n{rest}");
    job_file::parse(text.as_bytes(), Format::Toml).unwrap().file
}

fn resolved(folder: &Path, rest: &str) -> Result<Resolved, String> {
    resolve(&job(rest), folder, &BTreeMap::new()).map_err(|error| error.to_string())
}

#[test]
fn paths_become_hashes_and_outputs_absolute() {
    let folder = folder();
    let rest = "args = [\"{index}\"]\n[[outputs]]\npath = \"/out\"\nto = \"./results/{index}\"\n";
    let Resolved { spec, files } = resolved(folder.path(), rest).unwrap();
    assert_eq!(spec.module.hash, Hash::of(b"\0asm"));
    assert_eq!((spec.module.len, &*spec.module.name, &*spec.module.entry), (4, "m.wasm", "_start"));
    assert_eq!(spec.args, ["{index}"]);
    assert_eq!(spec.outputs[0].to, format!("{}/results/{{index}}", folder.path().display()));
    assert_eq!(spec.array.tasks.len(), 1);
    assert_eq!(files, [LocalFile { path: folder.path().join("./m.wasm"), hash: Hash::of(b"\0asm"), len: 4 }]);
}

#[test]
fn a_folder_is_all_its_files_in_order_and_each_content_goes_once() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("data/sub")).unwrap();
    for name in ["data/b", "data/a", "data/sub/c"] {
        fs::write(folder.path().join(name), b"same").unwrap();
    }
    symlink("a", folder.path().join("data/link")).unwrap();
    let Resolved { spec, files } =
        resolved(folder.path(), "[[inputs]]\nsource = \"./data\"\ntarget = \"/in\"\n").unwrap();
    let paths: Vec<&str> = spec.inputs[0].sources["./data"].iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a", "b", "link", "sub/c"]);
    assert_eq!(files.len(), 2);
}

#[test]
fn placeholders_in_sources_name_one_list_of_files_a_value() {
    let folder = folder();
    for name in ["x1", "x2"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let rest = "[array]\nmatrix = { A = [\"1\", \"2\"], B = [\"p\", \"q\"] }\n[[inputs]]\nsource = \"x{A}\"\ntarget = \"/in/x\"\n";
    let Resolved { spec, .. } = resolved(folder.path(), rest).unwrap();
    let keys: Vec<&String> = spec.inputs[0].sources.keys().collect();
    assert_eq!(keys, ["x1", "x2"]);
    assert_eq!(spec.inputs[0].sources["x2"][0], InputFile { path: String::new(), hash: Hash::of(b"x2"), len: 2 });
    assert_eq!(spec.array.tasks.len(), 4);
}

#[test]
fn links_out_of_a_folder_and_odd_files_are_refused_by_name() {
    let folder = folder();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let input = "[[inputs]]\nsource = \"data\"\ntarget = \"/in\"\n";
    assert!(resolved(folder.path(), input).unwrap_err().contains("has no files"));
    symlink("/etc/passwd", data.join("evil")).unwrap();
    let error = resolved(folder.path(), input).unwrap_err();
    assert!(error.contains("inputs[0].source") && error.contains("data/evil") && error.contains("link out"), "{error}");
    fs::remove_file(data.join("evil")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(data.join("socket")).unwrap();
    let error = resolved(folder.path(), input).unwrap_err();
    assert!(error.contains("neither a file nor a folder"), "{error}");
}

#[test]
fn a_missing_file_is_named_with_its_field() {
    let folder = folder();
    let error = resolved(folder.path(), "[[inputs]]\nsource = \"none\"\ntarget = \"/in\"\n").unwrap_err();
    assert!(error.starts_with("inputs[0].source: cannot read ") && error.contains("none"), "{error}");
    fs::remove_file(folder.path().join("m.wasm")).unwrap();
    assert!(resolved(folder.path(), "").unwrap_err().starts_with("runtime.wasm: cannot read "));
}

#[test]
fn an_input_by_hash_needs_to_be_held() {
    let folder = folder();
    let hash = Hash::of(b"x");
    let file = job(&format!("[[inputs]]\nsource = \"blake3:{hash}\"\ntarget = \"/in/x\"\n"));
    assert_eq!(blobs_named(&file), [hash]);
    let error = resolve(&file, folder.path(), &BTreeMap::new()).unwrap_err().to_string();
    assert!(error.contains("does not hold it"), "{error}");
    let Resolved { spec, files } = resolve(&file, folder.path(), &BTreeMap::from([(hash, 1)])).unwrap();
    assert_eq!(spec.inputs[0].sources.values().next().unwrap()[0].len, 1);
    assert_eq!(files.len(), 1);
}

#[test]
fn braces_of_the_folder_are_no_placeholders() {
    let output = output("/out", "./r/{index}", Path::new("/tmp/{x}"));
    assert_eq!(output.to, "/tmp/{{x}/r/{index}");
    assert_eq!(super::output("/out", "/abs/{index}", Path::new("/tmp")).to, "/abs/{index}");
}

/// Case M16: the same job is the same hash, in whatever order the keys of its maps are written.
#[test]
fn case_m16_the_order_of_keys_never_changes_the_hash_of_a_job() {
    let folder = folder();
    let spec = |labels: &str, env: &str, matrix: &str| {
        let text = format!(
            "version = 1\nname = \"t\"\nlabels = {{ {labels} }}\n[runtime]\nwasm = \"./m.wasm\"\nargs = [\"{{A}}{{B}}\"]\n\
             env = {{ {env} }}\n[array]\nmatrix = {{ {matrix} }}\n"
        );
        let file = job_file::parse(text.as_bytes(), Format::Toml).unwrap().file;
        resolve(&file, folder.path(), &BTreeMap::new()).unwrap().spec
    };
    let one = spec("x = \"1\", y = \"2\"", "data = \"d\", cache = \"c\"", "A = [\"1\", \"2\"], B = [\"p\"]");
    let other = spec("y = \"2\", x = \"1\"", "cache = \"c\", data = \"d\"", "B = [\"p\"], A = [\"1\", \"2\"]");
    assert_eq!(one.hash().unwrap(), other.hash().unwrap());
    assert_eq!(one.env, [("cache".to_owned(), "c".to_owned()), ("data".to_owned(), "d".to_owned())]);
    // Values and their order do make another job.
    let swapped = spec("x = \"1\", y = \"2\"", "data = \"d\", cache = \"c\"", "A = [\"2\", \"1\"], B = [\"p\"]");
    assert_ne!(one.hash().unwrap(), swapped.hash().unwrap());
}
