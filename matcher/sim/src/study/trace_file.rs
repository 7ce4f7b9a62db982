//! Public traces, read from where the user keeps them. Their licences allow study, so no row of them is part of this
//! project.
//!
//! The format is plain comma-separated text with a header line and without quotes; columns are found by their names.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use souk_protocol::Millis;

use super::{
    demand::{Demand, LONGEST, LeftOut, MilliGpu, Request, SHORTEST, Values},
    synthetic::{self, Class},
};
use crate::random::Dice;

/// Largest file that is read: the traces have at most some megabytes.
const MAX_FILE: u64 = 256 * 1024 * 1024;
/// Most of the demand of the GPU trace lies in its last days; before there is a row every few hours.
const RECENT: Millis = Millis(30 * 24 * 3_600_000);
/// Most GPUs of one row: a cluster's worth. More is a broken file.
const MAX_GPUS: u64 = 10_000;
/// Latest second of a trace: a thousand years. Later is a broken file, or no seconds.
const MAX_SECONDS: u64 = 31_557_600_000;

/// Tasks of the GPU trace.
pub(super) const PODS: &str = "openb_pods.csv";
/// Machines of the GPU trace.
pub(super) const NODES: &str = "openb_nodes.csv";
/// Run times of another cluster.
pub(super) const RUNTIMES: &str = "philly_runtime.csv";
/// Machines of a cluster with spot work.
pub(super) const SPOT_NODES: &str = "spot_gpu_nodes.csv";

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; give the folder that holds the traces", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too large for a trace.
    #[error("{} has {len} bytes, a trace has at most {MAX_FILE}; give another file", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its size.
        len: u64,
    },
    /// A column is missing.
    #[error("{} line 1 has no column {column:?}; its header must name it, among {wanted:?}", path.display())]
    NoColumn {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
        /// All columns that are used.
        wanted: Vec<&'static str>,
    },
    /// A line has another number of fields than the header.
    #[error("{} line {line} has {found} fields, its header has {wanted}; repair or remove the line", path.display())]
    Ragged {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Fields in it.
        found: usize,
        /// Fields in the header.
        wanted: usize,
    },
    /// A field is not what it should be.
    #[error("{} line {line}, field {column:?}: {value:?} is not {wanted}; repair or remove the line", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Which column.
        column: &'static str,
        /// What is there.
        value: String,
        /// What should be.
        wanted: &'static str,
    },
    /// There is nothing in it that can be used.
    #[error("{} holds nothing that can be used ({why}); give another file", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What became of its rows.
        why: String,
    },
}

/// A text file with its columns found.
struct Table<const N: usize> {
    path: PathBuf,
    text: String,
    columns: [&'static str; N],
    places: [usize; N],
    width: usize,
}

/// The wanted fields of one line.
struct Row<'a, const N: usize> {
    table: &'a Table<N>,
    line: usize,
    fields: [&'a str; N],
}

impl<const N: usize> Table<N> {
    fn read(path: &Path, columns: [&'static str; N]) -> Result<Self, TraceError> {
        let unreadable = |source| TraceError::Unreadable { path: path.to_owned(), source };
        let len = fs::metadata(path).map_err(unreadable)?.len();
        if len > MAX_FILE {
            return Err(TraceError::TooLarge { path: path.to_owned(), len });
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let header: Vec<_> = text.lines().next().unwrap_or_default().split(',').map(str::trim).collect();
        let mut places = [0; N];
        for (place, column) in places.iter_mut().zip(columns) {
            let found = header.iter().position(|name| *name == column);
            *place = found.ok_or_else(|| TraceError::NoColumn {
                path: path.to_owned(),
                column,
                wanted: columns.to_vec(),
            })?;
        }
        let width = header.len();
        Ok(Self { path: path.to_owned(), text, columns, places, width })
    }

    fn rows(&self) -> impl Iterator<Item = Result<Row<'_, N>, TraceError>> {
        let lines = self.text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
        lines.map(|(index, text)| {
            let all: Vec<_> = text.split(',').map(str::trim).collect();
            if all.len() != self.width {
                let (path, found) = (self.path.clone(), all.len());
                return Err(TraceError::Ragged { path, line: index + 1, found, wanted: self.width });
            }
            let fields = self.places.map(|place| all.get(place).copied().unwrap_or_default());
            Ok(Row { table: self, line: index + 1, fields })
        })
    }

    fn empty(&self, why: impl Into<String>) -> TraceError {
        TraceError::Empty { path: self.path.clone(), why: why.into() }
    }
}

impl<const N: usize> Row<'_, N> {
    fn wrong(&self, column: usize, wanted: &'static str) -> TraceError {
        TraceError::Field {
            path: self.table.path.clone(),
            line: self.line,
            column: self.table.columns.get(column).copied().unwrap_or_default(),
            value: self.fields.get(column).copied().unwrap_or_default().to_owned(),
            wanted,
        }
    }

    fn text(&self, column: usize) -> &str {
        self.fields.get(column).copied().unwrap_or_default()
    }

    /// A whole number up to `most`.
    fn number(&self, column: usize, most: u64, wanted: &'static str) -> Result<u64, TraceError> {
        let value = self.text(column).parse().map_err(|_| self.wrong(column, wanted))?;
        if value > most { Err(self.wrong(column, wanted)) } else { Ok(value) }
    }

    /// Seconds, with or without a fraction, as milliseconds; `None` if nothing is said.
    fn seconds(&self, column: usize) -> Result<Option<Millis>, TraceError> {
        const WANTED: &str = "a number of seconds";
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) {
            return Err(self.wrong(column, WANTED));
        }
        let whole: u64 = whole.parse().map_err(|_| self.wrong(column, WANTED))?;
        if whole > MAX_SECONDS {
            return Err(self.wrong(column, WANTED));
        }
        let thousandths = part.bytes().chain(*b"00").take(3).fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'));
        Ok(Some(Millis(whole * 1_000 + thousandths)))
    }
}

/// The demand of the GPU trace: tasks with GPUs, with their times, of its last 30 days. What its rows do not say (how
/// long their owners thought they would run, what they were worth) is drawn from `seed`.
///
/// # Errors
/// If the file cannot be read or understood, or nothing of it can be used.
pub fn pods(folder: &Path, seed: u64, values: &Values) -> Result<Demand, TraceError> {
    const COLUMNS: [&str; 6] = ["num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time"];
    let table = Table::read(&folder.join(PODS), COLUMNS)?;
    let mut dice = Dice::new(seed, "trace");
    let (mut requests, mut left_out) = (Vec::new(), LeftOut::default());
    for row in table.rows() {
        let row = row?;
        let gpus = row.number(0, MAX_GPUS, "a number of GPUs")?;
        let milli = row.number(1, MilliGpu::ONE.0, "a share of a GPU in thousandths")?;
        let class = match row.text(2) {
            "LS" => Class::Ls,
            "BE" => Class::Be,
            "Burstable" => Class::Burstable,
            "Guaranteed" => Class::Guaranteed,
            _ => return Err(row.wrong(2, "LS, BE, Burstable or Guaranteed")),
        };
        let (Some(at), Some(end), Some(start)) = (row.seconds(3)?, row.seconds(4)?, row.seconds(5)?) else {
            left_out.without_times += 1;
            continue;
        };
        let run = Millis(end.0.checked_sub(start.0).ok_or_else(|| row.wrong(4, "after its start"))?);
        if gpus == 0 || milli == 0 {
            left_out.without_gpu += 1;
            continue;
        }
        left_out.cut += usize::from(run > LONGEST);
        let run = run.clamp(SHORTEST, LONGEST);
        let tier = class.tier(&mut dice);
        requests.push(Request {
            at,
            tier,
            gpu: MilliGpu(gpus * milli),
            run,
            limit: synthetic::limit(&mut dice, run),
            worth: values.worth(&mut dice, tier),
            patience: None,
        });
    }
    requests.sort_by_key(|request| request.at);
    let last = requests.last().map_or(0, |request| request.at.0);
    let all = requests.len();
    requests.retain(|request| request.at.0 + RECENT.0 >= last);
    left_out.early = all - requests.len();
    if requests.is_empty() {
        return Err(
            table.empty(format!("{} rows without times, {} without GPU", left_out.without_times, left_out.without_gpu))
        );
    }
    let source = format!("{PODS}, {} tasks of its last 30 days", requests.len());
    Ok(Demand { source, requests, left_out })
}

/// The machines of the GPU trace: model and GPUs of each.
///
/// # Errors
/// If the file cannot be read or understood, or lists no machine with a GPU.
pub fn nodes(folder: &Path) -> Result<Vec<(String, u64)>, TraceError> {
    machines(&folder.join(NODES), ["model", "gpu"])
}

/// The machines of the cluster with spot work.
///
/// # Errors
/// As [`nodes`].
pub fn spot_nodes(folder: &Path) -> Result<Vec<(String, u64)>, TraceError> {
    machines(&folder.join(SPOT_NODES), ["gpu_model", "gpu_capacity_num"])
}

fn machines(path: &Path, columns: [&'static str; 2]) -> Result<Vec<(String, u64)>, TraceError> {
    let table = Table::read(path, columns)?;
    let machine = |row: Row<'_, 2>| Ok((row.text(0).to_owned(), row.number(1, MAX_GPUS, "a number of GPUs")?));
    let machines: Vec<_> = table.rows().map(|row| row.and_then(machine)).collect::<Result<_, _>>()?;
    if machines.iter().all(|(_, gpus)| *gpus == 0) {
        return Err(table.empty("no machine with a GPU"));
    }
    Ok(machines)
}

/// The run times of the other cluster, without those of zero.
///
/// # Errors
/// If the file cannot be read or understood, or has no run time above zero.
pub fn runtimes(folder: &Path) -> Result<Vec<Millis>, TraceError> {
    let table = Table::read(&folder.join(RUNTIMES), ["runtime"])?;
    let run = |row: Row<'_, 1>| row.seconds(0)?.ok_or_else(|| row.wrong(0, "a number of seconds"));
    let mut runs: Vec<_> = table.rows().map(|row| row.and_then(run)).collect::<Result<_, _>>()?;
    runs.retain(|run| run.0 > 0);
    if runs.is_empty() { Err(table.empty("no run time above zero")) } else { Ok(runs) }
}

impl Demand {
    /// The same jobs with run times drawn from `runs`.
    #[must_use]
    pub fn with_runtimes(mut self, seed: u64, runs: &[Millis]) -> Self {
        let mut dice = Dice::new(seed, "runtimes");
        self.left_out.cut = 0;
        for request in &mut self.requests {
            let run = dice.pick(runs).copied().unwrap_or(SHORTEST);
            self.left_out.cut += usize::from(run > LONGEST);
            request.run = run.clamp(SHORTEST, LONGEST);
            request.limit = synthetic::limit(&mut dice, request.run);
        }
        self.source = format!("{}, run times of {RUNTIMES}", self.source);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use souk_protocol::Tier;

    use super::*;

    /// A folder with one file, gone when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn with(name: &str, text: &str) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("souk-trace-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(name), text).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // what is left of a test is no harm
        }
    }

    const HEADER: &str = "name,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time\n";

    fn load(rows: &str) -> Result<Demand, String> {
        let folder = Folder::with(PODS, &format!("{HEADER}{rows}"));
        pods(&folder.0, 1, &Values::default())
            .map_err(|error| error.to_string().replace(&folder.0.display().to_string(), "DIR"))
    }

    #[test]
    fn tasks_become_requests_in_the_order_of_their_arrival() {
        let all = load("b,1,470,BE,3000100,3000700,3000101\na,8,1000,Guaranteed,3000000,3001000,3000500.25\n").unwrap();
        let [first, second] = all.requests.as_slice() else { panic!("{all:?}") };
        assert_eq!((first.tier, first.gpu, first.run), (Tier::Gold, MilliGpu(8_000), Millis(499_750)));
        assert_eq!((second.tier, second.gpu, second.run), (Tier::Bronze, MilliGpu(470), Millis(599_000)));
        assert_eq!((first.at, second.at), (Millis(3_000_000_000), Millis(3_000_100_000)));
        assert_eq!(first.limit.0 % first.run.0, 0);
    }

    #[test]
    fn what_cannot_be_used_is_counted_by_its_reason() {
        let rows = "a,1,1000,LS,0,90,1\nb,0,0,LS,9000000,9000090,9000001\nc,1,1000,LS,9000000,,9000001\n\
                    d,1,1000,LS,9000000,9900000,9000001\n";
        let all = load(rows).unwrap();
        assert_eq!(all.left_out, LeftOut { without_times: 1, without_gpu: 1, early: 1, too_wide: 0, cut: 1 });
        assert_eq!(all.requests.iter().map(|request| request.run).collect::<Vec<_>>(), [LONGEST]);
    }

    #[test]
    fn errors_name_the_file_the_line_the_field_and_the_remedy() {
        let cases = [
            ("a,1,1000,LS,0,x,1\n", "line 2, field \"deletion_time\": \"x\" is not a number of seconds"),
            (
                "a,1,1000,LS,0,5,1\na,1,1000,VIP,0,5,1\n",
                "line 3, field \"qos\": \"VIP\" is not LS, BE, Burstable or Guaranteed",
            ),
            ("a,1,2000,LS,0,5,1\n", "line 2, field \"gpu_milli\": \"2000\" is not a share of a GPU in thousandths"),
            ("a,1,1000,LS,0,5,9\n", "line 2, field \"deletion_time\": \"5\" is not after its start"),
            ("a,1,1000,LS,0,1.-5,1\n", "line 2, field \"deletion_time\": \"1.-5\" is not a number of seconds"),
        ];
        for (rows, text) in cases {
            assert_eq!(load(rows).unwrap_err(), format!("DIR/openb_pods.csv {text}; repair or remove the line"));
        }
        assert_eq!(
            load("a,1\n").unwrap_err(),
            "DIR/openb_pods.csv line 2 has 2 fields, its header has 7; repair or remove the line"
        );
        assert_eq!(
            load("").unwrap_err(),
            "DIR/openb_pods.csv holds nothing that can be used (0 rows without times, 0 without GPU); give another file"
        );
        let folder = Folder::with(RUNTIMES, "run\n1.0\n");
        let error = runtimes(&folder.0).unwrap_err().to_string();
        assert!(
            error.ends_with("line 1 has no column \"runtime\"; its header must name it, among [\"runtime\"]"),
            "{error}"
        );
        let error = nodes(&folder.0).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read ") && error.ends_with("give the folder that holds the traces"),
            "{error}"
        );
    }

    #[test]
    fn machines_and_run_times_are_read_by_the_names_of_their_columns() {
        let folder =
            Folder::with(SPOT_NODES, "gpu_model,gpu_capacity_num,cpu_num,node_name\nH800,8,192,0\nA10,1,128,1\n");
        assert_eq!(spot_nodes(&folder.0).unwrap(), [("H800".to_owned(), 8), ("A10".to_owned(), 1)]);
        let folder = Folder::with(NODES, "sn,cpu_milli,memory_mib,gpu,model\r\nn,1,1,2,T4\r\n");
        assert_eq!(nodes(&folder.0).unwrap(), [("T4".to_owned(), 2)]);
        let folder = Folder::with(RUNTIMES, "runtime\n0.0\n1.5\n42\n");
        let runs = runtimes(&folder.0).unwrap();
        assert_eq!(runs, [Millis(1_500), Millis(42_000)]);
        let all = load("a,1,1000,LS,0,90,1\n").unwrap().with_runtimes(1, &runs);
        assert!([Millis(30_000), Millis(42_000)].contains(&all.requests[0].run));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_loader_panic(text in ".{0,200}") {
            let folder = Folder::with(PODS, &format!("{HEADER}{text}"));
            let _ = pods(&folder.0, 1, &Values::default()); // an error or not, it must come back
        }
    }
}
