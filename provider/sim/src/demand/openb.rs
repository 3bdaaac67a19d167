//! Reads the list of pods of Alibaba's GPU trace of 2023 (openb), from a file that whoever runs this has.
//!
//! The trace may be used for research but not passed on, so no file of it is part of the project.
//!
//! # What is read
//! Pods that requested whole GPUs and were scheduled. A pod that ran at the start of the time arrives then, with what
//! was left of its run. The trace names GPU models of its own cluster; [`MODELS`] tells which ones stand in for them.
//!
//! # Workloads
//! * [`Selection::whole`]: the trace as it is (W1).
//! * [`Selection::capped`]: CPU and memory as an instance type with one GPU has them (W1n).
//! * [`Selection::churn`]: pods of at most a day, four times over at shifted times (W2).

use std::path::Path;

use super::{Demand, InstanceType, Pod, Resources};
use crate::world::draw::Seed;

mod faults;
mod rows;
#[cfg(test)]
mod tests;

pub use faults::{Fault, Unreadable, What};
use rows::{Row, Rows};

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// GPU models of the trace, with the model that stands in for each.
///
/// Names are those of the price tables, but for the V100 with 32 GB: the tables tell it apart by its memory, and
/// [`InstanceType::model`] has to do so by its name.
pub const MODELS: [(&str, &str); 7] = [
    ("A10", "A10G"),
    ("G2", "L4"),
    ("G3", "L40S"),
    ("P100", "T4"),
    ("T4", "T4"),
    ("V100M16", "V100"),
    ("V100M32", "V100-32GB"),
];

/// Part of the time, by when pods arrive. A pod that runs when a part starts arrives at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// What arrives in its first half, such as for choosing the numbers of a policy.
    FirstHalf,
    /// What arrives in its second half, such as for judging that choice.
    SecondHalf,
}

/// By how much copies of the trace are shifted.
#[derive(Debug, Clone, PartialEq)]
pub enum Shifts {
    /// Evenly over the time, drawn from the seed.
    Drawn(u64),
    /// In seconds, for each chosen pod and copy but the first, in the order of the file.
    Given(Vec<f64>),
}

/// What of the trace makes the demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Second of the trace at which the time starts. It ends with the trace.
    pub starts: f64,
    /// Part of that time.
    pub part: Part,
    /// Longest run of a pod in seconds. Longer ones are left out.
    pub longest: Option<f64>,
    /// CPU and memory that a pod requests per GPU at most.
    pub cap: Option<Resources>,
    /// How often each pod comes.
    pub copies: u32,
    /// Shifts of the copies. What would arrive after the end arrives as long after the start.
    pub shifts: Shifts,
    /// Whether pods that no type can run are left out. Else they are faults.
    pub leaves_out: bool,
}

impl Selection {
    /// The dense part of the trace, as it is (W1).
    pub const fn whole() -> Self {
        let (starts, shifts) = (115.0 * DAY, Shifts::Drawn(0));
        Self { starts, part: Part::Whole, longest: None, cap: None, copies: 1, shifts, leaves_out: true }
    }

    /// The same with at most 7.6 CPUs and 28,000 MiB per GPU (W1n).
    pub fn capped() -> Self {
        Self { cap: Some(Resources { gpus: 1, milli_cpu: 7_600, memory_mib: 28_000 }), ..Self::whole() }
    }

    /// Pods of at most a day, four times over, with the same cap (W2).
    pub fn churn() -> Self {
        Self { longest: Some(DAY), copies: 4, ..Self::capped() }
    }
}

/// Demand from the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Demand.
    pub demand: Demand,
    /// Names of chosen pods that no type can run.
    pub left_out: Vec<String>,
}

/// Whether a file's header is that of the trace.
pub fn is_trace(text: &str) -> bool {
    rows::is_header(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default())
}

/// Reads the file.
pub fn read(path: &Path, types: &[InstanceType], selection: &Selection) -> Result<Trace, Unreadable> {
    let path = path.to_owned();
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&text, types, selection).map_err(|faults| Unreadable::Faulty { path, faults }),
        Err(why) => Err(Unreadable::File { path, why }),
    }
}

/// Reads the text of the file.
pub fn parse(text: &str, types: &[InstanceType], selection: &Selection) -> Result<Trace, Vec<Fault>> {
    let Rows { rows, mut faults } = rows::parse(text);
    let ends = rows.iter().map(|row| row.deleted).fold(selection.starts, f64::max);
    let half = (ends - selection.starts) / 2.0;
    let (starts, ends) = match selection.part {
        Part::Whole => (selection.starts, ends),
        Part::FirstHalf => (selection.starts, ends - half),
        Part::SecondHalf => (selection.starts + half, ends),
    };
    let seconds = ends - starts;
    let chosen = |row: &&Row| {
        let short = selection.longest.is_none_or(|most| row.deleted - row.scheduled <= most);
        row.deleted > starts && row.created < ends && row.deleted > row.scheduled && short
    };
    let mut copied = Copies { shifts: &selection.shifts, stream: None, seconds, used: 0 };
    let mut demand = Demand { types: types.to_vec(), pods: Vec::new(), seconds };
    let mut left_out = Vec::new();
    for row in rows.iter().filter(chosen) {
        let pod = pod(row, starts, selection.cap.as_ref());
        let held = !demand.types_for(&pod).is_empty();
        if !held && !selection.leaves_out {
            faults.push(Fault { line: row.line, what: What::TooBig { pod: row.name.clone() } });
        }
        for copy in 0..selection.copies {
            let shift = if copy == 0 { Some(0.0) } else { copied.next() };
            let Some(shift) = shift else {
                faults.push(Fault { line: row.line, what: What::NoShift { given: copied.used } });
                return Err(faults);
            };
            let name = if selection.copies == 1 { row.name.clone() } else { format!("{}-{copy}", row.name) };
            if held {
                demand.pods.push(Pod { name, arrives: (pod.arrives + shift) % seconds, ..pod.clone() });
            } else {
                left_out.push(name);
            }
        }
    }
    if faults.is_empty() && demand.pods.is_empty() {
        faults.push(Fault { line: 1, what: What::NonePicked { rows: rows.len() } });
    }
    if !faults.is_empty() {
        faults.sort_by_key(|fault| fault.line);
        return Err(faults);
    }
    demand.pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    Ok(Trace { demand, left_out })
}

fn pod(row: &Row, starts: f64, cap: Option<&Resources>) -> Pod {
    let mut requests = row.requests;
    if let Some(cap) = cap {
        requests.milli_cpu = requests.milli_cpu.min(cap.milli_cpu.saturating_mul(requests.gpus));
        requests.memory_mib = requests.memory_mib.min(cap.memory_mib.saturating_mul(requests.gpus));
    }
    Pod {
        name: String::new(),
        arrives: row.created.max(starts) - starts,
        runs: row.deleted - row.scheduled.max(starts),
        requests,
        gpu_milli: row.gpu_milli,
        pool: None,
        models: row.models.clone(),
        service: row.service,
    }
}

/// Shifts, one after the other.
struct Copies<'a> {
    shifts: &'a Shifts,
    stream: Option<crate::world::draw::Stream>,
    seconds: f64,
    used: usize,
}

impl Copies<'_> {
    fn next(&mut self) -> Option<f64> {
        let shift = match self.shifts {
            Shifts::Given(shifts) => shifts.get(self.used).copied()?,
            Shifts::Drawn(seed) => {
                let stream = self.stream.get_or_insert_with(|| Seed(*seed).stream("copies", &[], 0));
                stream.unit() * self.seconds
            }
        };
        self.used += 1;
        Some(shift)
    }
}
