//! Demand of GPU pods from a file: comma-separated values with a header, one pod a line.
//!
//! ```csv
//! name,pool,arrives,runs,gpus,cpu,memory,models,service
//! replica-1,inference,0s,12h,1,3,12Gi,,latency-sensitive
//! job-1,training,1h30m,2h,8,24,96Gi,A10G|A100,best-effort
//! ```
//!
//! | column | holds | when left out or empty |
//! |---|---|---|
//! | `name` | name of the pod, unique in the file | a fault |
//! | `pool` | pool that it asks for | the policy's first |
//! | `arrives` | when it is created, from the start: a length of time, or seconds | a fault |
//! | `runs` | how long it runs once started: likewise | a fault |
//! | `gpus` | whole GPUs | a fault |
//! | `cpu` | CPUs: `3`, `0.5` or `500m` | a fault |
//! | `memory` | `12Gi`, `512Mi`, `1Ti` or `12G`, as Kubernetes has it | a fault |
//! | `models` | GPU models that it may run on, with `\|` between them | any |
//! | `service` | `latency-sensitive`, or `best-effort`: may be moved | neither |
//!
//! Columns may come in any order. Lines that begin with `#` are comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use csv::StringRecord;
use stoker_core::base::text::{nearest, quoted, read_length};
use stoker_core::catalogue::Catalogue;

use super::{Demand, Pod, Resources, Service, types};

/// Columns that every file has, and those that it may have.
const NEEDED: [&str; 6] = ["name", "arrives", "runs", "gpus", "cpu", "memory"];
const OPTIONAL: [&str; 3] = ["pool", "models", "service"];
/// Faults that are shown; more say no more.
const SHOWN: usize = 40;
/// Longest time from the start, in seconds: ten years.
const LONGEST: f64 = 315_360_000.0;

/// Something wrong in a file, with its cure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Line in the file, from 1.
    pub line: u64,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Everything that is wrong in a file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    file: String,
    faults: Vec<Fault>,
}

impl Faults {
    /// Those of a file of that name; there must be one.
    pub fn new(file: &str, faults: Vec<Fault>) -> Self {
        Self { file: file.to_owned(), faults }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Fault { line, message }) in self.faults.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}:{line}: {message}", if n == 0 { "" } else { "\n" }, self.file)?;
        }
        match self.faults.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for Faults {}

/// A policy that pods are checked against.
#[derive(Debug, Clone, Copy)]
pub struct Against<'a> {
    /// What it is called in faults.
    pub policy: &'a str,
    /// The policy with its groups.
    pub catalogue: &'a Catalogue,
}

/// Reads the pods of a file, by arrival. Each pod must be able to run under each of the policies. `models` are the GPU
/// models that there are.
///
/// # Errors
/// Every fault, by line. `file` is only shown.
pub fn read(file: &str, text: &str, models: &BTreeSet<&str>, policies: &[Against<'_>]) -> Result<Vec<Pod>, Faults> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut faults = Vec::new();
    let mut records = reader.records().filter_map(|record| match record {
        Ok(record) => Some((record.position().map_or(1, csv::Position::line), record)),
        Err(_) => None,
    });
    let header = records.next();
    let columns = header.as_ref().map_or_else(
        || {
            Err(vec![fault(
                1,
                format!("the file is empty: begin with the header {}", [&NEEDED[..], &OPTIONAL].concat().join(",")),
            )])
        },
        |(line, record)| columns(*line, record),
    );
    let (columns, header) = match (columns, header) {
        (Ok(columns), Some((_, header))) => (columns, header),
        (columns, _) => return Err(Faults::new(file, columns.err().unwrap_or_default())),
    };
    let homes: Vec<Home<'_>> = policies.iter().map(Home::of).collect();
    let mut pods: Vec<Pod> = Vec::new();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    for (line, record) in records {
        if record == header {
            faults.push(fault(
                line,
                "is a second header, as if two files were joined: give each demand a file of its own".into(),
            ));
            continue;
        }
        if record.len() != header.len() {
            let (has, wants) = (record.len(), header.len());
            faults.push(fault(line, format!("has {has} values where the header names {wants} columns: write one for each")));
            continue;
        }
        let row = Row { line, record: &record, columns: &columns };
        let Some(pod) = row.pod(models, &mut faults) else { continue };
        if let Some(first) = names.insert(pod.name.clone(), line) {
            let message = format!("name {} is that of line {first} too: each pod needs its own", quoted(&pod.name));
            faults.push(fault(line, message));
        }
        faults.extend(homes.iter().filter_map(|home| home.fault(&pod)).map(|message| fault(line, message)));
        pods.push(pod);
    }
    if pods.is_empty() && faults.is_empty() {
        faults.push(fault(1, "there is no pod below the header: write one a line".into()));
    }
    pods.sort_by(|one, other| one.arrives.total_cmp(&other.arrives));
    if faults.is_empty() { Ok(pods) } else { Err(Faults::new(file, faults)) }
}

const fn fault(line: u64, message: String) -> Fault {
    Fault { line, message }
}

/// The place of each column.
fn columns(line: u64, header: &StringRecord) -> Result<BTreeMap<&'static str, usize>, Vec<Fault>> {
    let known = || NEEDED.into_iter().chain(OPTIONAL);
    let (mut columns, mut faults) = (BTreeMap::new(), Vec::new());
    for (at, cell) in header.iter().enumerate() {
        let name = cell.trim_start_matches('\u{feff}');
        let Some(column) = known().find(|column| *column == name) else {
            let cure = match nearest(name, known()) {
                Some(column) => format!("did you mean {column}?"),
                None => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
            };
            faults.push(fault(line, format!("column {} is unknown: {cure}", quoted(name))));
            continue;
        };
        if columns.insert(column, at).is_some() {
            faults.push(fault(line, format!("column {column} is there twice: keep one")));
        }
    }
    let missing: Vec<&str> = NEEDED.into_iter().filter(|column| !columns.contains_key(column)).collect();
    if !missing.is_empty() {
        let s = if missing.len() == 1 { "" } else { "s" };
        faults.push(fault(
            line,
            format!("column{s} {} missing from the header: add the name and a value on each line", missing.join(", ")),
        ));
    }
    if faults.is_empty() { Ok(columns) } else { Err(faults) }
}

/// A line below the header.
struct Row<'a> {
    line: u64,
    record: &'a StringRecord,
    columns: &'a BTreeMap<&'static str, usize>,
}

impl Row<'_> {
    fn cell(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|at| self.record.get(*at)).unwrap_or_default()
    }

    /// The pod of the line; each of its faults is told.
    fn pod(&self, models: &BTreeSet<&str>, faults: &mut Vec<Fault>) -> Option<Pod> {
        let before = faults.len();
        let mut tell = |message: String| faults.push(fault(self.line, message));
        let name = self.cell("name").to_owned();
        if name.is_empty() {
            tell("name is empty: give the pod one".into());
        } else if name.contains(char::is_control) {
            tell(format!("name {} has a control character: leave it out", quoted(&name)));
        }
        let arrives = seconds("arrives", self.cell("arrives"), true).map_err(&mut tell);
        let runs = seconds("runs", self.cell("runs"), false).map_err(&mut tell);
        let gpus = gpus(self.cell("gpus")).map_err(&mut tell);
        let milli_cpu = milli_cpu(self.cell("cpu")).map_err(&mut tell);
        let memory_mib = memory_mib(self.cell("memory")).map_err(&mut tell);
        let wanted: Vec<String> =
            self.cell("models").split('|').map(str::trim).filter(|model| !model.is_empty()).map(str::to_owned).collect();
        for model in wanted.iter().filter(|model| !models.contains(model.as_str())) {
            let cure = nearest(model, models.iter().copied()).map_or_else(
                || "`stoker offers` lists those that there are".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            tell(format!("GPU model {} is unknown: {cure}", quoted(model)));
        }
        let service = match self.cell("service") {
            "" => Some(Service::Other),
            "latency-sensitive" => Some(Service::LatencySensitive),
            "best-effort" => Some(Service::BestEffort),
            other => {
                tell(format!("service {} is unknown: write latency-sensitive, best-effort or nothing", quoted(other)));
                None
            }
        };
        if faults.len() > before {
            return None;
        }
        let pool = Some(self.cell("pool").to_owned()).filter(|pool| !pool.is_empty());
        let requests = Resources { gpus: gpus.ok()?, milli_cpu: milli_cpu.ok()?, memory_mib: memory_mib.ok()? };
        Some(Pod {
            name,
            arrives: arrives.ok()?,
            runs: runs.ok()?,
            requests,
            gpu_milli: 1000,
            models: wanted,
            service: service?,
            pool,
        })
    }
}

/// Seconds, or a length of time.
fn seconds(column: &str, text: &str, zero: bool) -> Result<f64, String> {
    let cure = "write seconds, or a length of time like 90s, 10m or 1h30m";
    #[expect(clippy::cast_precision_loss, reason = "a length within ten years is below 2^53")]
    let length = |text: &str| read_length(text).ok().map(|length| length.as_secs() as f64);
    let read = |text: &str| text.parse::<f64>().ok().filter(|seconds| seconds.is_finite()).or_else(|| length(text));
    if text.strip_prefix('-').is_some_and(|rest| read(rest).is_some()) {
        return Err(format!("{column} {} is negative: the demand begins at 0; {cure}", quoted(text)));
    }
    match read(text) {
        None => Err(format!("{column} {} is no length of time: {cure}", quoted(text))),
        Some(0.0) if !zero => Err(format!("{column} is 0: a pod runs for a while; {cure}")),
        Some(seconds) if seconds > LONGEST => Err(format!("{column} {} is above ten years: {cure}", quoted(text))),
        Some(seconds) => Ok(seconds),
    }
}

fn gpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("gpus is 0: leave pods without GPUs out".into()),
        Ok(gpus) => Ok(gpus),
        Err(_) => Err(format!("gpus {} is no whole number: write how many GPUs the pod requests, like 1", quoted(text))),
    }
}

/// Thousandths of a CPU, rounded up.
fn milli_cpu(text: &str) -> Result<u32, String> {
    let milli = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u32>().ok(),
        None => text.parse::<f64>().ok().and_then(|cpus| up(cpus * 1000.0)),
    };
    milli.ok_or_else(|| format!("cpu {} is no number of CPUs: write it like 3, 0.5 or 500m", quoted(text)))
}

/// Units of memory in bytes. Bytes alone are none: who leaves the unit out means another one.
const UNITS: [(&str, f64); 8] = [
    ("Ki", 1024.0),
    ("Mi", MIB),
    ("Gi", 1024.0 * MIB),
    ("Ti", 1024.0 * 1024.0 * MIB),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];
const MIB: f64 = 1024.0 * 1024.0;

/// MiB, rounded up.
fn memory_mib(text: &str) -> Result<u32, String> {
    let in_unit = |(unit, bytes): &(&str, f64)| up(text.strip_suffix(unit)?.parse::<f64>().ok()? * bytes / MIB);
    let mib = UNITS.iter().find_map(in_unit);
    mib.ok_or_else(|| format!("memory {} is no amount of memory: write it like 12Gi or 512Mi", quoted(text)))
}

fn up(number: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within what fits, as the filter says")]
    let whole = |number: f64| number.ceil() as u32;
    Some(number).filter(|number| (0.0..=f64::from(u32::MAX)).contains(number)).map(whole)
}

/// What a policy has for pods.
#[derive(Debug)]
pub struct Home<'a> {
    policy: &'a str,
    first: &'a str,
    pools: BTreeMap<&'a str, Demand>,
}

impl<'a> Home<'a> {
    /// The pools of a policy, with their instance types.
    pub fn of(against: &Against<'a>) -> Self {
        let Against { policy, catalogue } = *against;
        let pools = &catalogue.policy.pools;
        let types = |pool: &str| Demand { types: types::cheapest_of(catalogue, pool), pods: Vec::new(), seconds: 0.0 };
        Self {
            policy,
            first: pools.first().map(|pool| pool.name.as_str()).unwrap_or_default(),
            pools: pools.iter().map(|pool| (pool.name.as_str(), types(pool.name.as_str()))).collect(),
        }
    }

    /// Why the pod cannot run here; `None` where it can.
    pub fn fault(&self, pod: &Pod) -> Option<String> {
        let name = pod.pool.as_deref().unwrap_or(self.first);
        let Some(pool) = self.pools.get(name) else {
            let cure = match nearest(name, self.pools.keys().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("it has {}", self.pools.keys().copied().collect::<Vec<_>>().join(", ")),
            };
            return Some(format!("pool {} is not in {}: {cure}", quoted(name), self.policy));
        };
        if !pool.types_for(pod).is_empty() {
            return None;
        }
        let Resources { gpus, milli_cpu, memory_mib } = pod.requests;
        let models = if pod.models.is_empty() { String::new() } else { format!(" of {}", pod.models.join(" or ")) };
        let s = if gpus == 1 { "" } else { "s" };
        Some(format!(
            "no instance type of pool {name} in {} holds {gpus} GPU{s}{models} with {} CPUs and {} of memory: ask for less, or widen \
             gpu or instanceTypes of the pool",
            self.policy,
            f64::from(milli_cpu) / 1000.0,
            if memory_mib.is_multiple_of(1024) { format!("{}Gi", memory_mib / 1024) } else { format!("{memory_mib}Mi") },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_kubernetes_has_it() {
        let of = ["12Gi", "512Mi", "1Ti", "0.5Gi", "2048Ki", "12G", "1T", "500M", "1k"].map(|text| memory_mib(text).unwrap());
        assert_eq!(of, [12_288, 512, 1_048_576, 512, 2, 11_445, 953_675, 477, 1]);
        for text in ["12", "Gi", "-1Gi", "12GB", "1Pi", "9999999Ti", ""] {
            assert!(memory_mib(text).is_err(), "{text}");
        }
    }
}
