use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::grammar::{Count, Range};
use crate::id::NodeId;
use crate::money::{Credits, Rate};
use crate::spec::RetryOn;
use crate::terms::{Isolation, Local, Mode, Pay, Tier, Verify};
use crate::units::{Bytes, MilliCpu, Millis, Ppm};

const HEAD: &str = "version = 1\nname = \"x\"\n";
const WASM: &str = "[runtime]\nwasm = \"./x.wasm\"\n";

fn read(text: &str) -> Parsed {
    parse(text.as_bytes(), Format::Toml).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn errors(text: &str) -> Vec<String> {
    match parse(text.as_bytes(), Format::Toml) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

/// A valid file with more lines in front of (`root`) or behind (`rest`) its runtime.
fn wasm(rest: &str) -> String {
    format!("{HEAD}{WASM}{rest}")
}

/// The one error of a wasm job with these extra lines.
fn refusal(rest: &str) -> String {
    let mut errors = errors(&wasm(rest));
    assert_eq!(errors.len(), 1, "{rest}: {errors:?}");
    errors.remove(0)
}

fn digest() -> String {
    format!("sha256:{}", "0123456789abcdef".repeat(4))
}

fn full_task() -> String {
    format!(
        r#"
version = 1
name    = "finetune"
type    = "task"
labels  = {{ team = "vision" }}

[runtime]
image   = "docker.io/library/python@{}"
args    = ["--lr", "{{LR}}", "--seed", "{{SEED}}"]
env     = {{ MODE = "fast" }}
secrets = ["HF_TOKEN"]
network = "none"

[resources]
gpu     = "A100:80GB:2"
cpu     = "4.."
memory  = "8GB.."
disk    = "20GB"
region  = ["eu", "us-east"]
isolation = "C1"
data    = "any"

[market]
tier        = "silver"
max_price   = "2.20 CR/h"
budget      = "40 CR"
pay         = "delivered"
preemptible = true
notice      = "2m"
mode        = "auto"
local       = "first"
allow = []
deny  = []

[sla]
start_within = "10m"
start_at     = "2026-12-24T08:00:00Z"
deadline     = "2026-12-24T18:00:00Z"
reliability  = "0.95"
latency      = "50ms"
loss         = "10 CR"
offline      = "2h"
retention    = "24h"
verify       = "telemetry"

[limits]
timeout = "6h"
stop_grace = "30s"
stdout  = "64MB"

[retry]
attempts = 3
on       = ["no-capacity", "preempted", "lost", "provider-fault"]

[array]
matrix       = {{ LR = ["0.1", "0.01"], SEED = ["0", "1", "2", "3"] }}
max_parallel = 4
max_failures = 2
gang         = false

[[inputs]]
source = "./digits.csv"
target = "/in/digits.csv"
sealed = false

[[outputs]]
path = "/out"
to   = "./results/{{job}}/{{index}}"

[checkpoint]
path  = "/ckpt"
every = "10m"
"#,
        digest()
    )
}

fn full_service() -> String {
    format!(
        r#"
version = 1
name    = "chat"
type    = "service"
[runtime]
image = "vllm/vllm-openai@{}"
args  = ["--model", "Qwen/Qwen2.5-7B-Instruct", "--port", "8000"]
[resources]
gpu = ["L40S:1", "24GB..48GB:2"]
[service]
port      = 8000
replicas  = "1..4"
scaling   = {{ metric = "rps", target = 5 }}
readiness = {{ path = "/health", initial_delay = "3m", timeout = "5s" }}
[sla]
p95_latency = "1500ms"
uptime      = "99.5%"
[market]
tier      = "gold"
max_price = "1.10 CR/h"
"#,
        digest()
    )
}

#[test]
fn every_field_of_the_documented_task_is_read() {
    let Parsed { file, warnings } = read(&full_task());
    assert_eq!(warnings, []);
    assert_eq!((file.version, file.name.as_str(), &file.kind), (1, "finetune", &JobKind::Task));
    assert_eq!(file.labels, BTreeMap::from([("team".to_owned(), "vision".to_owned())]));
    assert_eq!(
        file.runtime,
        RuntimeSection {
            program: Program::Image { reference: format!("docker.io/library/python@{}", digest()), entrypoint: None },
            args: ["--lr", "{LR}", "--seed", "{SEED}"].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("MODE".to_owned(), "fast".to_owned())]),
            secrets: vec!["HF_TOKEN".to_owned()],
            network: NetworkAccess::None,
        }
    );
    assert_eq!(
        file.resources,
        ResourcesSection {
            gpu: vec!["A100:80GB:2".parse().unwrap()],
            cpu: Range::at_least(MilliCpu(4_000)),
            memory: Range::at_least(Bytes(8_000_000_000)),
            disk: Range::exactly(Bytes(20_000_000_000)),
            region: vec!["eu".to_owned(), "us-east".to_owned()],
            isolation: Isolation::C1,
            data: DataPlacement::Any,
        }
    );
    assert_eq!(
        file.market,
        MarketSection {
            tier: Tier::Silver,
            max_price: Some(Rate(2_200_000)),
            budget: Some(Credits(40_000_000)),
            pay: Pay::Delivered,
            preemptible: true,
            notice: Millis(120_000),
            mode: Mode::Auto,
            local: Local::First,
            allow: vec![],
            deny: vec![],
        }
    );
    assert_eq!(
        file.sla,
        SlaSection {
            start_within: Some(Millis(600_000)),
            start_at: Some(Timestamp(1_798_099_200_000)),
            deadline: Some(Timestamp(1_798_135_200_000)),
            reliability: Some(Ppm(950_000)),
            latency: Some(Millis(50)),
            near: None,
            loss: Some(Credits(10_000_000)),
            offline: Millis(7_200_000),
            retention: Millis(86_400_000),
            verify: Verify::Telemetry,
            p95_latency: None,
            uptime: None,
        }
    );
    assert_eq!(
        file.limits,
        LimitsSection { timeout: Millis(21_600_000), stop_grace: Millis(30_000), stdout: Bytes(64_000_000) }
    );
    assert_eq!(file.retry.attempts, 3);
    assert_eq!(file.retry.on, [RetryOn::NoCapacity, RetryOn::Preempted, RetryOn::Lost, RetryOn::ProviderFault]);
    assert_eq!((file.array.max_parallel, file.array.max_failures, file.array.gang), (4, Some(2), false));
    assert_eq!(
        file.inputs,
        [InputSection {
            source: InputSource::Path("./digits.csv".to_owned()),
            target: "/in/digits.csv".to_owned(),
            sealed: false
        }]
    );
    assert_eq!(file.outputs, [OutputSection { path: "/out".to_owned(), to: "./results/{job}/{index}".to_owned() }]);
    assert_eq!(file.checkpoint, Some(CheckpointSection { path: "/ckpt".to_owned(), every: Millis(600_000) }));
}

#[test]
fn every_field_of_the_documented_service_is_read() {
    let file = read(&full_service()).file;
    assert_eq!(
        file.kind,
        JobKind::Service(ServiceSection {
            port: 8_000,
            replicas: Range { lo: Count(1), hi: Some(Count(4)) },
            scaling: Some(Scaling { metric: ScalingMetric::Rps, target: 5 }),
            readiness: Some(Readiness {
                path: "/health".to_owned(),
                initial_delay: Millis(180_000),
                timeout: Millis(5_000)
            }),
        })
    );
    assert_eq!(file.resources.gpu.len(), 2);
    assert_eq!(file.resources.isolation, Isolation::G1);
    assert_eq!((file.sla.p95_latency, file.sla.uptime), (Some(Millis(1_500)), Some(Ppm(995_000))));
    assert!(!file.market.preemptible);
}

#[test]
fn the_smallest_file_has_the_documented_defaults() {
    let file = read(&wasm("")).file;
    assert_eq!(file.runtime.program, Program::Wasm { path: "./x.wasm".to_owned(), entry: "_start".to_owned() });
    assert_eq!(file.runtime.network, NetworkAccess::None);
    assert_eq!(file.resources.cpu, Range::at_least(MilliCpu(1_000)));
    assert_eq!(file.resources.memory, Range::at_least(Bytes(512_000_000)));
    assert_eq!(file.resources.disk, Range::at_least(Bytes(1_000_000_000)));
    assert_eq!(file.resources.isolation, Isolation::W0);
    assert_eq!((file.market.tier, file.market.preemptible), (Tier::Bronze, true));
    assert_eq!((file.market.pay, file.market.mode, file.market.local), (Pay::Delivered, Mode::Auto, Local::First));
    assert_eq!((file.market.max_price, file.market.budget), (None, None));
    assert_eq!(file.limits.timeout, Millis(600_000));
    assert_eq!(
        (file.sla.offline, file.sla.retention, file.sla.verify),
        (Millis(0), Millis(86_400_000), Verify::Telemetry)
    );
    assert_eq!(file.retry.attempts, 3);
    assert_eq!(file.retry.on.len(), 4);
    assert_eq!((file.inputs.len(), file.outputs.len(), file.checkpoint), (0, 0, None));
}

#[test]
fn case_r1_an_array_without_a_count_is_one_task() {
    assert_eq!(read(&wasm("")).file.task_count(), 1);
    assert_eq!(read(&wasm("[array]\nmax_parallel = 4\n")).file.task_count(), 1);
    assert_eq!(read(&wasm("[array]\ncount = 64\n")).file.task_count(), 64);
    // None at all is never taken for one: it is refused, because a job without tasks means nothing.
    assert_eq!(refusal("[array]\ncount = 0\n"), "line 6: array.count = 0: a whole number from 1 to 10000 is expected");
}

#[test]
fn case_r2_unknown_fields_and_wrong_types_are_errors_with_their_path() {
    assert_eq!(
        refusal("[array]\ncount = \"1\"\n"),
        "line 6: array.count = \"1\": a whole number is expected, not text, write 1 without quotes"
    );
    assert_eq!(
        refusal("[limits]\ntimout = \"1h\"\n"),
        "line 6: limits.timout = \"1h\": unknown field, did you mean \"timeout\"?"
    );
    assert_eq!(
        refusal("[limits]\nbanana = 1\n"),
        "line 6: limits.banana = 1: unknown field, known here: timeout, stop_grace, stdout"
    );
    assert_eq!(
        refusal("[market]\npreemptible = \"true\"\n"),
        "line 6: market.preemptible = \"true\": true or false is expected, not text, write true without quotes"
    );
    assert_eq!(refusal("[limit]\n"), "line 5: limit: unknown field, did you mean \"limits\"?");
    assert_eq!(refusal("[[array]]\n"), "line 5: array: a table is expected, not a list");
    assert_eq!(
        refusal("[array]\nmatrix = { A = [1] }\n"),
        "line 6: array.matrix.A[0] = 1: text is expected, write \"1\""
    );
}

#[test]
fn case_u1_a_size_without_a_unit_is_an_error() {
    assert_eq!(refusal("[resources]\nmemory = 64\n"), "line 6: resources.memory = 64: add a unit, e.g. \"64GB\"");
    assert_eq!(
        refusal("[resources]\nmemory = \"64\"\n"),
        "line 6: resources.memory = \"64\": add a unit, e.g. \"64GB\""
    );
}

#[test]
fn case_m2_cores_may_be_numbers_or_text() {
    let cpu = |value: &str| read(&wasm(&format!("[resources]\ncpu = {value}\n"))).file.resources.cpu.lo;
    assert_eq!(cpu("\"100m\""), MilliCpu(100));
    assert_eq!(cpu("1.001"), MilliCpu(1_001));
    assert_eq!(cpu("2"), MilliCpu(2_000));
    assert_eq!(cpu("\"..8\""), MilliCpu(1_000));
    for value in ["\"250.5m\"", "\"0.0001\"", "\"2k\"", "0", "-1", "1e3", "inf", "nan", "\"1..2..3\""] {
        assert_eq!(errors(&wasm(&format!("[resources]\ncpu = {value}\n"))).len(), 1, "{value}");
    }
}

#[test]
fn case_m18_names_and_references_with_line_ends_are_refused() {
    let text = format!("{HEAD}[runtime]\nimage = \"docker.io/x/y:1gvmi\\n\"\n");
    assert_eq!(
        errors(&text),
        [
            "line 4: runtime.image = \"docker.io/x/y:1gvmi\\n\": a space or line end at its start or end is not allowed, remove it"
        ]
    );
    assert_eq!(errors(&wasm("").replace("\"x\"", "\"x\\n\"")).len(), 1);
}

#[test]
fn case_m24_a_name_that_starts_with_a_digit_is_refused_with_the_pattern() {
    assert_eq!(
        errors(&wasm("").replace("\"x\"", "\"1x\"")),
        [
            "line 2: name = \"1x\": not a name, a name is a lower-case letter, then lower-case letters, digits and \"-\", at most 63 in all"
        ]
    );
}

#[test]
fn case_t1_single_variables_and_odd_values_are_kept() {
    let big = "v".repeat(100_000);
    let text = wasm("").replace(
        "[runtime]\n",
        &format!("[runtime]\nenv = {{ FOO = \"bar\", A = \"\", B = \"b=c\", BIG = \"{big}\" }}\n"),
    );
    let env = read(&text).file.runtime.env;
    assert_eq!(env.get("FOO").unwrap(), "bar");
    assert_eq!(env.get("A").unwrap(), "");
    assert_eq!(env.get("B").unwrap(), "b=c");
    assert_eq!(env.get("BIG").unwrap().len(), 100_000);
    let one = wasm("").replace("[runtime]\n", "[runtime]\nenv = { FOO = \"bar\" }\n");
    assert_eq!(read(&one).file.runtime.env.len(), 1);
    let entry = wasm("").replace("[runtime]\n", "[runtime]\nenv = { \"FOO=bar\" = \"\" }\n");
    assert!(errors(&entry)[0].contains("runtime.env.\"FOO=bar\""), "{:?}", errors(&entry));
    let list = wasm("").replace("[runtime]\n", "[runtime]\nenv = [\"FOO\"]\n");
    assert_eq!(errors(&list), ["line 4: runtime.env: a table is expected, not a list"]);
}

#[test]
fn case_u3_a_model_number_is_not_a_count_of_gpus() {
    let text = format!("{HEAD}[runtime]\nimage = \"a:1\"\n[resources]\ngpu = 4090\n");
    assert!(
        errors(&text)[0]
            .starts_with("line 6: resources.gpu = 4090: 4090 is a model number, not a count, did you mean RTX 4090")
    );
}

#[test]
fn case_u5_ranges_of_shares_and_zero_attempts_are_checked() {
    assert!(refusal("[sla]\nreliability = 98\n").contains("a share is at most 1, did you mean \"98%\"?"));
    assert!(refusal("[retry]\nattempts = 0\n").contains("a whole number from 1 to 100 is expected"));
    assert!(refusal("[market]\nmax_price = \"$0.5\"\n").contains("a number is expected here"));
    assert_eq!(read(&wasm("[retry]\nattempts = 1\n")).file.retry.attempts, 1);
}

#[test]
fn case_u19_malformed_requests_are_errors_of_the_file() {
    for (line, part) in [
        ("cpu = \"1..2..3\"", "two bounds"),
        ("memory = \"8GB..4GB\"", "lower bound is above"),
        ("disk = \"0GB\"", "too small"),
    ] {
        assert!(refusal(&format!("[resources]\n{line}\n")).contains(part), "{line}");
    }
    let text = format!("{HEAD}[runtime]\nimage = \"a:1\"\n[resources]\ngpu = [\"A1O0\", \"...\", \"A100:2\"]\n");
    let errors = errors(&text);
    assert_eq!(errors.len(), 2);
    assert!(errors[0].starts_with("line 6: resources.gpu[0] = \"A1O0\": unknown GPU"), "{errors:?}");
}

#[test]
fn all_errors_of_a_file_are_shown_at_once_in_order() {
    let text = "version = 2\nname = \"X\"\ntipe = \"task\"\n[runtime]\nwasm = \"x.wasm\"\nimage = \"y\"\nargs = [\"{nope}\", 1]\n\
                [limits]\ntimeout = 0\nstdout = \"0B\"\n[market]\nmax_price = \"1 CR\"\n[[inputs]]\ntarget = \"/proc\"\n\
                [[outputs]]\npath = \"/etc\"\n";
    let errors = errors(text);
    let lines: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "line 1", "line 2", "line 3", "line 6", "line 7", "line 7", "line 9", "line 10", "line 12", "line 13",
            "line 14", "line 16"
        ],
        "{errors:#?}"
    );
    assert!(errors[2].contains("did you mean \"type\"?"));
    assert!(errors[9].starts_with("line 13: inputs[0].source: missing"));
}

#[test]
fn errors_can_be_shown_with_their_file() {
    let errors = parse(wasm("[limits]\ntimeout = 0\n").as_bytes(), Format::Toml).unwrap_err();
    assert_eq!(errors.0[0].in_file("job.toml"), "job.toml:6: limits.timeout = 0: add a unit, e.g. \"0s\" or \"0m\"");
}

#[test]
fn bytes_that_are_no_job_file_are_refused_with_clear_text() {
    let refused = |bytes: &[u8]| parse(bytes, Format::Toml).unwrap_err().to_string();
    assert_eq!(refused(b"version = 1\n\xff"), "line 2: not UTF-8 at byte 12, save the file as UTF-8");
    assert_eq!(
        refused(&vec![b' '; MAX_JOB_FILE + 1]),
        "the file has 1048577 bytes, at most 1048576 are read, give large data as an input"
    );
    assert!(refused(b"").contains("line 1: version: missing, add version = 1"));
    assert!(refused(b"version = ").contains("line 1: "));
    assert!(refused(b"version = ").contains("not valid TOML"));
    let twice = "version = 1\nname = \"x\"\nname = \"y\"\n[runtime]\nwasm = \"x.wasm\"\n";
    assert_eq!(refused(twice.as_bytes()), "line 3: \"name\": this key is given twice, keep one of the two");
}

#[test]
fn a_repeated_key_does_not_hide_other_errors() {
    let errors =
        errors("version = 1\nname = \"x\"\nname = \"y\"\n[runtime]\nwasm = \"x.wasm\"\n[limits]\ntimeout = 0\n");
    assert_eq!(
        errors,
        [
            "line 3: \"name\": this key is given twice, keep one of the two",
            "line 7: limits.timeout = 0: add a unit, e.g. \"0s\" or \"0m\""
        ]
    );
}

#[test]
fn flags_replace_whole_fields_and_are_judged_like_the_file() {
    let text = wasm("[resources]\ncpu = \"2\"\nmemory = \"banana\"\n");
    let set = |path: &str, value: OverrideValue| Override { path: path.to_owned(), value };
    let flags = [
        set("resources.memory", OverrideValue::Text("1GB".to_owned())),
        set("market.budget", OverrideValue::Text("2 CR".to_owned())),
        set("runtime.args", OverrideValue::Texts(vec!["{index}".to_owned()])),
        set("runtime.env", OverrideValue::Table(vec![("A".to_owned(), "b".to_owned())])),
        set("array.count", OverrideValue::Whole(2)),
        set("market.preemptible", OverrideValue::Flag(false)),
    ];
    let file = parse_with(text.as_bytes(), Format::Toml, &flags).unwrap().file;
    assert_eq!(file.resources.memory, Range::exactly(Bytes(1_000_000_000)));
    assert_eq!(file.resources.cpu, Range::exactly(MilliCpu(2_000)));
    assert_eq!((file.market.budget, file.market.preemptible), (Some(Credits(2_000_000)), false));
    assert_eq!((file.runtime.args.clone(), file.task_count()), (vec!["{index}".to_owned()], 2));
    assert_eq!(file.line_of("resources.cpu"), Some(6));

    let wrong =
        [set("resources.memory", OverrideValue::Text("64".to_owned())), set("market.budgt", OverrideValue::Whole(1))];
    let errors = parse_with(text.as_bytes(), Format::Toml, &wrong).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "resources.memory = \"64\": add a unit, e.g. \"64GB\"\nmarket.budgt = 1: unknown field, did you mean \"budget\"?"
    );
}

#[test]
fn a_job_may_have_no_file_at_all() {
    let set = |path: &str, text: &str| Override { path: path.to_owned(), value: OverrideValue::Text(text.to_owned()) };
    let file = from_overrides(&[set("name", "hello"), set("runtime.wasm", "./hello.wasm")]).unwrap().file;
    assert_eq!(file.runtime.program, Program::Wasm { path: "./hello.wasm".to_owned(), entry: "_start".to_owned() });
    assert!(file.lines.is_empty());
    assert_eq!(
        from_overrides(&[set("runtime.wasm", "x")]).unwrap_err().to_string(),
        "name: missing, add name = \"my-job\""
    );
}

#[test]
fn case_u18_values_that_look_secret_are_not_repeated() {
    let text = wasm("env = { HF_TOKEN = \"hf_s3cret{\" }\n");
    let shown = parse(text.as_bytes(), Format::Toml).unwrap_err().to_string();
    assert!(shown.contains("runtime.env.HF_TOKEN") && !shown.contains("hf_s3cret"), "{shown}");
}

#[test]
fn a_mark_at_the_start_and_windows_line_ends_change_nothing() {
    let text = wasm("[limits]\ntimeout = \"1h\"\n");
    let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(read(&windows), read(&text));
    let wrong = windows.replace("1h", "1x");
    assert!(errors(&wrong)[0].starts_with("line 6: limits.timeout"));
}

#[test]
fn deeply_nested_values_are_refused_without_a_crash() {
    let text = wasm(&format!("x = {}{}\n", "[".repeat(100_000), "]".repeat(100_000)));
    assert!(!errors(&text).is_empty());
    let text = wasm(&format!("x = {}1{}\n", "{ a = ".repeat(50_000), "}".repeat(50_000)));
    assert!(!errors(&text).is_empty());
}

#[test]
fn the_number_of_errors_shown_is_bounded() {
    let many: String = (0..500).map(|n| format!("unknown_{n} = 1\n")).collect();
    let errors = errors(&format!("{HEAD}{many}{WASM}"));
    assert_eq!(errors.len(), 101);
    assert_eq!(errors[100], "and 400 more errors");
}

#[test]
fn a_job_runs_one_program() {
    assert!(errors(&format!("{HEAD}[runtime]\nargs = []\n"))[0].contains("nothing to run"));
    assert!(errors(HEAD)[0].contains("nothing to run"));
    assert!(refusal("image = \"a:1\"\n").contains("not both"));
    assert!(refusal("entrypoint = [\"a\"]\n").contains("a wasm module has no entrypoint"));
    assert!(refusal("[resources]\nisolation = \"C1\"\n").contains("a wasm module runs in class W0"));
    assert!(refusal("[resources]\ngpu = \"A100\"\n").contains("a wasm module can't use a GPU"));
    assert!(refusal("[resources]\nmemory = \"800GB..\"\n").contains("at most 4 GiB (4294967296 bytes)"));
    assert!(refusal("[resources]\nmemory = \"4294967297B\"\n").contains("at most 4 GiB"));
    assert_eq!(errors(&wasm("[resources]\nmemory = \"4GiB..\"\n")), [""; 0]);
    assert!(errors(&wasm("").replace(".wasm", ".cwasm"))[0].contains("precompiled code is never accepted"));
    let image = format!("{HEAD}[runtime]\nimage = \"a:1\"\n");
    assert!(errors(&format!("{image}entry = \"run\"\n"))[0].contains("an image has no entry"));
    assert!(errors(&format!("{image}[resources]\nisolation = \"G1\"\n"))[0].contains("class G1 is for GPUs"));
    assert!(errors(&format!("{image}[resources]\nisolation = \"W0\"\n"))[0].contains("class W0 is for wasm"));
    assert!(errors(&image.replace("a:1", "a:latest"))[0].contains(":latest is another image every day"));
    assert_eq!(read(&image).file.resources.isolation, Isolation::C1);
}

#[test]
fn the_machine_of_a_provider_is_never_given_away() {
    for field in [
        "privileged = true",
        "host_network = true",
        "pid = \"host\"",
        "capabilities = [\"SYS_ADMIN\"]",
        "devices = [\"/dev/kvm\"]",
    ] {
        assert!(refusal(&format!("{field}\n")).contains("never allowed"), "{field}");
    }
    assert!(refusal("network = \"host\"\n").contains("never allowed"));
    for target in ["/", "/proc", "/dev/shm", "/var/run/docker.sock", "/in/../etc", "/sys/x", "/out/x"] {
        refusal(&format!("[[inputs]]\nsource = \"./a\"\ntarget = \"{target}\"\n"));
    }
    for source in ["/", "/proc/1", "/dev/sda", "/run/docker.sock"] {
        refusal(&format!("[[inputs]]\nsource = \"{source}\"\ntarget = \"/in\"\n"));
    }
}

#[test]
fn blocked_variables_and_bad_names_are_refused() {
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "NVIDIA_DRIVER_CAPABILITIES"] {
        assert!(refusal(&format!("env = {{ {name} = \"1\" }}\n")).contains("never taken from a job"), "{name}");
        assert!(refusal(&format!("secrets = [\"{name}\"]\n")).contains("never taken from a job"), "{name}");
    }
    assert!(refusal("env = { \"A\\u0000\" = \"1\" }\n").contains("not a name of a variable"));
    assert!(refusal("env = { A = \"1\\u0000\" }\n").contains("a NUL"));
    assert!(refusal("env = { A = 1 }\n").contains("text is expected, write \"1\""));
    assert!(refusal("env = { A = \"1\" }\nsecrets = [\"A\"]\n").contains("the same name is in env"));
}

#[test]
fn a_secret_in_the_environment_is_a_warning() {
    let Parsed { warnings, .. } = read(&wasm("env = { HF_TOKEN = \"hf_x\", MODE = \"fast\" }\n"));
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].path, "runtime.env.HF_TOKEN");
    assert_eq!(warnings[0].line, Some(5));
    assert!(!warnings[0].to_string().contains("hf_x"));
}

#[test]
fn outputs_lie_below_the_output_folder_and_never_overlap() {
    for path in ["/etc", "/out/../x", "out", "/outer"] {
        assert!(refusal(&format!("[[outputs]]\npath = \"{path}\"\n")).contains("outputs[0].path"), "{path}");
    }
    assert_eq!(read(&wasm("[[outputs]]\npath = \"/out/model\"\n")).file.outputs[0].to, "./results/{job}/{index}");
    let collide = "[array]\ncount = 2\n[[outputs]]\npath = \"/out\"\nto = \"./results/{job}\"\n";
    assert_eq!(
        refusal(collide),
        "line 9: outputs[0].to = \"./results/{job}\": all 2 tasks would write to one place, add {index}, or every key of the matrix"
    );
    assert_eq!(errors(&wasm(&collide.replace("count = 2", "count = 1"))), [""; 0]);
    let by_key = "args = [\"{A}\"]\n[array]\nmatrix = { A = [\"1\", \"2\"], B = [\"x\"] }\n[[outputs]]\npath = \"/out\"\nto = \"r/{A}\"\n";
    assert_eq!(read(&wasm(by_key)).file.task_count(), 2);
    assert!(refusal("[[outputs]]\npath = \"/out\"\n[[outputs]]\npath = \"/out\"\n").contains("the same output twice"));
}

#[test]
fn inputs_never_hide_each_other() {
    let two = |a: &str, b: &str| {
        format!("[[inputs]]\nsource = \"a\"\ntarget = \"{a}\"\n[[inputs]]\nsource = \"b\"\ntarget = \"{b}\"\n")
    };
    assert_eq!(errors(&wasm(&two("/in/a", "/in/ab"))), [""; 0]);
    assert_eq!(
        refusal(&two("/in/a", "/in/a")),
        "line 10: inputs[1].target: the same target as inputs[0], give each input its own"
    );
    assert_eq!(
        refusal(&two("/in", "/in/a")),
        "line 10: inputs[1].target: lies inside the target of inputs[0], put it beside"
    );
    assert_eq!(
        refusal(&two("/in/a", "/in")),
        "line 7: inputs[0].target: lies inside the target of inputs[1], put it beside"
    );
}

#[test]
fn counts_are_capped() {
    let input = |n: usize| format!("[[inputs]]\nsource = \"a\"\ntarget = \"/in/{n}\"\n");
    let thousand: String = (0..1_000).map(input).collect();
    assert_eq!(read(&wasm(&thousand)).file.inputs.len(), 1_000);
    assert!(refusal(&format!("{thousand}{}", input(1_000))).contains("1001 items, at most 1000 are allowed"));
    assert_eq!(read(&wasm("[array]\ncount = 10000\n")).file.task_count(), 10_000);
    assert!(refusal("[array]\ncount = 10001\n").contains("from 1 to 10000"));
    let values: Vec<String> = (0..101).map(|n| format!("\"{n}\"")).collect();
    let values = values.join(",");
    assert!(
        refusal(&format!("[array]\nmatrix = {{ A = [{values}], B = [{values}] }}\n")).contains("more than 10000 tasks")
    );
    let big = "v".repeat(70_000);
    assert!(refusal(&format!("env = {{ A = \"{big}\", B = \"{big}\" }}\n")).contains("over 131072 bytes together"));
}

#[test]
fn placeholders_are_known_names_everywhere() {
    assert_eq!(
        refusal("args = [\"{lr}\"]\n[array]\nmatrix = { LR = [\"1\"] }\n").split(": ").nth(2).unwrap(),
        "unknown placeholder \"lr\", did you mean \"LR\"? (\"{{\" is a brace)"
    );
    for rest in [
        "args = [\"{X}\"]\n",
        "args = [\"{X\"]\n",
        "env = { A = \"{X}\" }\n",
        "[[inputs]]\nsource = \"./{X}\"\ntarget = \"/in\"\n",
        "[[inputs]]\nsource = \"./x\"\ntarget = \"/in/{X}\"\n",
        "[[outputs]]\npath = \"/out/{X}\"\n",
        "[[outputs]]\npath = \"/out\"\nto = \"{X}\"\n",
    ] {
        assert!(refusal(rest).contains('X'), "{rest}");
    }
    assert_eq!(errors(&wasm("args = [\"{{\\\"a\\\": 1}\", \"{index}\", \"{job}\"]\n")), [""; 0]);
}

#[test]
fn a_matrix_value_never_leads_out_of_a_folder() {
    for value in ["..", ".", "", "a/b", "../x"] {
        let rest = format!(
            "[array]\nmatrix = {{ A = [\"{value}\"] }}\n[[outputs]]\npath = \"/out/{{A}}\"\nto = \"./r/{{index}}\"\n"
        );
        assert!(refusal(&rest).contains("can't be used in a path"), "{value:?}");
    }
    let rest =
        "[array]\nmatrix = { A = [\"a/b.csv\", \"c.csv\"] }\n[[inputs]]\nsource = \"./{A}\"\ntarget = \"/in/x.csv\"\n";
    assert_eq!(errors(&wasm(rest)), [""; 0]);
}

#[test]
fn matrices_are_refused_where_they_have_no_clear_tasks() {
    for (matrix, part) in [
        ("{}", "an empty matrix"),
        ("{ A = [] }", "without values"),
        ("{ A = [\"1\", \"1\"] }", "the same value twice"),
        ("{ index = [\"1\"] }", "its own meaning"),
        ("{ \"1A\" = [\"1\"] }", "not a name for a placeholder"),
        ("{ A = \"1\" }", "a list is expected"),
        ("{ A = [0.1] }", "text is expected, write \"0.1\""),
    ] {
        assert!(refusal(&format!("[array]\nmatrix = {matrix}\n")).contains(part), "{matrix}");
    }
    assert!(refusal("[array]\ncount = 2\nmatrix = { A = [\"1\"] }\n").contains("not both"));
    assert!(
        refusal("[array]\ncount = 4\ngang = true\nmax_parallel = 2\n").contains("a gang starts all 4 tasks at once")
    );
}

#[test]
fn tasks_of_a_matrix_come_in_the_documented_order() {
    let file = read(&full_task()).file;
    let tasks: Vec<TaskVars> = file.tasks().collect();
    assert_eq!(tasks.len(), 8);
    let shown: Vec<String> = tasks.iter().map(|task| task.expand("{LR}/{SEED}@{index}", "j").unwrap()).collect();
    assert_eq!(shown, ["0.1/0@0", "0.1/1@1", "0.1/2@2", "0.1/3@3", "0.01/0@4", "0.01/1@5", "0.01/2@6", "0.01/3@7"]);
    let counted = read(&wasm("[array]\ncount = 3\n")).file;
    assert_eq!(counted.tasks().map(|task| (task.index, task.vars.len())).collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 0)]);
}

#[test]
fn a_key_of_the_matrix_that_is_never_used_is_a_warning() {
    let Parsed { warnings, .. } = read(&wasm("[array]\nmatrix = { A = [\"1\", \"2\"] }\n"));
    assert_eq!(
        warnings.iter().map(|warning| (warning.path.as_str(), warning.line)).collect::<Vec<_>>(),
        [("array.matrix.A", Some(6))]
    );
}

#[test]
fn gold_is_never_preemptible() {
    assert!(refusal("[market]\ntier = \"gold\"\npreemptible = true\n").contains("gold is never preempted"));
    assert!(!read(&wasm("[market]\ntier = \"silver\"\n")).file.market.preemptible);
}

#[test]
fn zero_is_refused_where_it_means_nothing() {
    for rest in [
        "[limits]\ntimeout = \"0s\"\n",
        "[limits]\nstdout = \"0B\"\n",
        "[market]\nbudget = \"0 CR\"\n",
        "[market]\nmax_price = \"0 CR/h\"\n",
        "[sla]\nstart_within = \"0s\"\n",
        "[sla]\nreliability = \"0\"\n",
        "[sla]\nretention = \"0h\"\n",
        "[sla]\nverify = \"spot:0\"\n",
        "[sla]\nverify = \"replicate:1\"\n",
        "[checkpoint]\nevery = \"0s\"\n",
        "[resources]\nmemory = \"0B\"\n",
    ] {
        refusal(rest);
    }
    assert_eq!(
        read(&wasm("[sla]\noffline = \"0s\"\n[limits]\nstop_grace = \"0s\"\n")).file.limits.stop_grace,
        Millis(0)
    );
}

#[test]
fn verification_levels_are_read() {
    let verify = |word: &str| read(&wasm(&format!("[sla]\nverify = \"{word}\"\n"))).file.sla.verify;
    assert_eq!(verify("none"), Verify::None);
    assert_eq!(verify("spot:0.1"), Verify::Spot(Ppm(100_000)));
    assert_eq!(verify("spot:10%"), Verify::Spot(Ppm(100_000)));
    assert_eq!(verify("replicate:2"), Verify::Replicate(2));
    for word in ["spot", "spot:", "spot:2", "replicate:", "replicate:17", "always", ""] {
        refusal(&format!("[sla]\nverify = \"{word}\"\n"));
    }
}

#[test]
fn deadlines_are_judged_against_each_other_and_against_the_clock() {
    let times = |start: &str, deadline: &str| format!("[sla]\nstart_at = \"{start}\"\ndeadline = \"{deadline}\"\n");
    assert!(refusal(&times("2026-12-24T08:00:00Z", "2026-12-24T08:00:00Z")).contains("not after start_at"));
    let file = read(&wasm(&times("2026-12-24T08:00:00Z", "2026-12-24T18:00:00Z"))).file;
    assert_eq!(file.check_at("2026-12-24T07:59:59Z".parse().unwrap()), []);
    let late = file.check_at("2026-12-24T18:00:00Z".parse().unwrap());
    assert_eq!(late.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(), ["sla.deadline", "sla.start_at"]);
    assert_eq!(
        late[0].to_string(),
        "line 7: sla.deadline = \"2026-12-24T18:00:00Z\": in the past, it is 2026-12-24T18:00:00Z, choose a later time"
    );
    // A date of TOML is read like text, but needs its zone.
    assert_eq!(read(&wasm("[sla]\ndeadline = 2026-12-24T18:00:00Z\n")).file.sla.deadline, file.sla.deadline);
    assert!(refusal("[sla]\ndeadline = 2026-12-24T18:00:00\n").contains("the zone is missing"));
}

#[test]
fn providers_are_named_by_their_whole_id() {
    let id = NodeId([7; 32]);
    let file = read(&wasm(&format!("[market]\nallow = [\"{id}\"]\n"))).file;
    assert_eq!(file.market.allow, [id]);
    assert!(refusal("[market]\nallow = [\"k3v9q\"]\n").contains("not the id of a node"));
    assert!(refusal(&format!("[market]\nallow = [\"{id}\"]\ndeny = [\"{id}\"]\n")).contains("both allowed and denied"));
}

#[test]
fn services_and_tasks_keep_to_their_own_fields() {
    assert!(refusal("[sla]\nuptime = \"99%\"\n").contains("only a service has this"));
    assert!(refusal("[service]\nport = 1\n").contains("only a service has this section"));
    let service = full_service();
    assert!(errors(&service.replace("[service]\nport      = 8000", "[service]"))[0].contains("service.port: missing"));
    assert!(errors(&format!("{service}[array]\ncount = 2\n"))[0].contains("a service has no such section"));
    assert!(
        errors(&service.replace("scaling   = { metric = \"rps\", target = 5 }", ""))[0]
            .contains("a range needs scaling")
    );
    assert!(
        errors(&wasm("").replace("[runtime]", "type = \"service\"\n[service]\nport = 1\n[runtime]"))[0]
            .contains("can't listen")
    );
}

#[test]
fn what_is_not_built_yet_is_listed_with_its_field() {
    let named = |text: &str| not_available(&read(text).file).iter().map(|feature| feature.name).collect::<Vec<_>>();
    assert_eq!(named(&wasm("")), [""; 0]);
    assert_eq!(named(&full_task()), ["image", "secrets", "gpu", "isolation", "checkpoint"]);
    assert_eq!(named(&full_service()), ["service", "image", "gpu"]);
    let hash = "ab".repeat(32);
    let rest = format!(
        "network = \"allowlist\"\nhosts = [\"pypi.org\"]\n[resources]\ndata = \"warm\"\n[market]\npay = \"metered\"\n\
         [sla]\nverify = \"replicate:2\"\n[array]\ngang = true\n\
         [[inputs]]\nsource = \"https://x.org/a#blake3:{hash}\"\ntarget = \"/in\"\nsealed = true\n"
    );
    assert_eq!(named(&wasm(&rest)), ["network", "data", "metered", "verify", "gang", "sealed", "https"]);
    let features = not_available(&read(&full_task()).file);
    assert_eq!(features[2].to_string(), "line 15: resources.gpu: not available yet: GPU jobs");
}

#[test]
fn a_file_is_shown_as_json_in_the_words_of_the_grammar() {
    let json = serde_json::to_value(read(&full_task()).file).unwrap();
    assert_eq!(json["type"], "task");
    assert_eq!(json["market"]["budget"], "40.000000 CR");
    assert_eq!(json["market"]["tier"], "silver");
    assert_eq!(json["resources"]["gpu"][0], "A100:80GB:2");
    assert_eq!(json["resources"]["memory"], "8GB..");
    assert_eq!(json["limits"]["timeout"], "6h");
    assert_eq!(json["sla"]["deadline"], "2026-12-24T18:00:00Z");
    assert_eq!(json["retry"]["on"][3], "provider-fault");
    assert!(json.get("lines").is_none());
}

#[test]
fn every_example_is_valid_and_asks_for_nothing_that_is_missing() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for folder in std::fs::read_dir(examples).unwrap() {
        let job = folder.unwrap().path().join("job.toml");
        let Ok(bytes) = std::fs::read(&job) else { continue };
        let Parsed { file, warnings } =
            parse(&bytes, Format::Toml).unwrap_or_else(|errors| panic!("{}: {errors}", job.display()));
        assert_eq!(warnings, [], "{}", job.display());
        assert_eq!(not_available(&file), [], "{}", job.display());
        seen += 1;
    }
    assert!(seen > 0);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, Format::Toml);
    }

    /// A valid file with one stretch of it replaced: hits every reader with every kind of value.
    #[test]
    fn no_damaged_file_makes_the_parser_panic(
        service: bool,
        at in 0.0f64..1.0,
        len in 0usize..12,
        patch in "[a-zA-Z0-9\"{}\\[\\]=., \n:/-]{0,12}|0|-1|true|\\{\\}|\\[\\]|\"\"|1e3|2026-12-24",
    ) {
        let text = if service { full_service() } else { full_task() };
        let start = (at * text.len() as f64) as usize;
        let end = (start + len).min(text.len());
        let mut damaged = text.clone();
        damaged.replace_range(start..end, &patch);
        if let Err(errors) = parse(damaged.as_bytes(), Format::Toml) {
            prop_assert!(!errors.0.is_empty());
            for problem in &errors.0 {
                prop_assert!(!problem.to_string().is_empty());
            }
        }
    }

    /// Any field given any kind of value is either read or reported, never ignored and never a crash.
    #[test]
    fn every_field_survives_every_kind_of_value(
        field in 0usize..60,
        value in prop_oneof![
            Just("0"), Just("-1"), Just("1.5"), Just("true"), Just("\"\""), Just("\"x\""), Just("[]"), Just("{}"), Just("[[]]"),
            Just("[{}]"), Just("2026-12-24"), Just("inf"), Just("99999999999999999999"),
        ],
    ) {
        let text = full_task();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let at = field % lines.len();
        if let Some((key, _)) = lines[at].split_once('=') {
            lines[at] = format!("{key}= {value}");
        }
        let _ = parse(lines.join("\n").as_bytes(), Format::Toml);
    }

    #[test]
    fn tasks_of_a_matrix_are_all_different(a in 1usize..6, b in 1usize..6, c in 1usize..6) {
        let values = |n: usize| (0..n).map(|v| v.to_string()).collect::<Vec<_>>();
        let tasks = ArrayTasks::Matrix(BTreeMap::from([
            ("A".to_owned(), values(a)), ("B".to_owned(), values(b)), ("C".to_owned(), values(c)),
        ]));
        prop_assert_eq!(tasks.count() as usize, a * b * c);
        let all: std::collections::BTreeSet<_> = (0..tasks.count()).map(|index| tasks.vars(index)).collect();
        prop_assert_eq!(all.len(), a * b * c);
    }
}

/// Case S2: a word that is not on the list is an error that names the field, never the most permissive default; nor is
/// the right word in other letters.
#[test]
fn case_s2_unknown_words_are_errors_and_never_defaults() {
    let wasm_fields = [
        ("market", "tier"),
        ("market", "mode"),
        ("market", "pay"),
        ("market", "local"),
        ("sla", "verify"),
        ("resources", "isolation"),
        ("resources", "data"),
    ];
    for (section, field) in wasm_fields {
        for word in ["composite", "Any", "ALL", "AUTO", "Gold", "", "accept-all", "w0", "first "] {
            let found = refusal(&format!("[{section}]\n{field} = \"{word}\"\n"));
            assert!(found.contains(&format!("{section}.{field}")), "{found}");
        }
    }
    for word in ["everything", "Lost", "any", ""] {
        let found = refusal(&format!("[retry]\non = [\"lost\", \"{word}\"]\n"));
        assert!(found.contains("retry.on"), "{found}");
    }
    for (line, field) in [("type = \"Task\"", "type"), ("type = \"batch\"", "type")] {
        let found = errors(&format!("{HEAD}{line}\n{WASM}"));
        assert!(found.len() == 1 && found[0].contains(field), "{found:?}");
    }
    let found = errors(&format!("{HEAD}{WASM}network = \"Open\"\n"));
    assert!(found.len() == 1 && found[0].contains("runtime.network"), "{found:?}");
}

/// Case M16: the order in which a map's keys are written is no part of what is meant, in none of the maps of a file.
#[test]
fn case_m16_the_order_of_keys_makes_no_other_job() {
    let file = |swap: bool| {
        let pair = |a: &str, b: &str| if swap { format!("{{ {b}, {a} }}") } else { format!("{{ {a}, {b} }}") };
        let labels = pair("team = \"vision\"", "cost = \"7\"");
        let env = pair("data = \"/in\"", "cache = \"/tmp\"");
        let matrix = pair("LR = [\"0.1\", \"0.01\"]", "SEED = [\"0\", \"1\"]");
        let market = if swap { "mode = \"ask\"\ntier = \"silver\"" } else { "tier = \"silver\"\nmode = \"ask\"" };
        let runtime = format!("[runtime]\nwasm = \"./x.wasm\"\nargs = [\"{{LR}}\", \"{{SEED}}\"]\nenv = {env}\n");
        let (array, market) = (format!("[array]\nmatrix = {matrix}\n"), format!("[market]\n{market}\n"));
        let sections = if swap { [array, market, runtime] } else { [runtime, market, array] };
        let read = read(&format!("version = 1\nname = \"x\"\nlabels = {labels}\n{}", sections.concat()));
        JobFile { lines: BTreeMap::new(), ..read.file }
    };
    let (one, other) = (file(false), file(true));
    assert_eq!(one, other);
    assert_eq!(one.tasks().collect::<Vec<_>>(), other.tasks().collect::<Vec<_>>());
    assert_eq!(one.tasks().count(), 4);
}
