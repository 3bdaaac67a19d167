//! What is wrong with a trace, with the line and the cure.

use std::path::PathBuf;

/// Why there is no demand.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file itself.
    #[error("{}: {why}: name a list of pods of Alibaba's GPU trace of 2023 (openb_pod_list_*.csv)", .path.display())]
    File {
        /// File.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// What it says, by line.
    #[error("{}:\n{}", .path.display(), listed(.faults))]
    Faulty {
        /// File.
        path: PathBuf,
        /// All that is wrong with it.
        faults: Vec<Fault>,
    },
}

/// Faults that are shown, at most. A file of another kind has one in every line.
const SHOWN: usize = 40;

fn listed(faults: &[Fault]) -> String {
    let mut lines: Vec<String> = faults.iter().take(SHOWN).map(ToString::to_string).collect();
    if faults.len() > SHOWN {
        lines.push(format!("and {} more", faults.len() - SHOWN));
    }
    lines.join("\n")
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Fault {
    /// Line of the file, from 1.
    pub line: u64,
    /// What is wrong there.
    pub what: What,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// The file has no header.
    #[error("the file is empty: download the list of pods again")]
    Empty,
    /// A column that is read is not in the header.
    #[error("there is no column {0}: use a list of pods of the trace of 2023, with its header")]
    NoColumn(&'static str),
    /// The header came before.
    #[error("the header comes again: keep one trace in the file, and read the other one by itself")]
    SecondHeader,
    /// A line has more or fewer fields than the header.
    #[error("{got} fields instead of {expected}: repair the line, or download the list of pods again")]
    Fields {
        /// Fields of the line.
        got: usize,
        /// Fields of the header.
        expected: usize,
    },
    /// A field is no number, or less than zero.
    #[error("{column} is {text:?}, which is no number from 0: repair the line, or remove it")]
    NoNumber {
        /// Column.
        column: &'static str,
        /// What it holds.
        text: String,
    },
    /// A time is before the one that it follows.
    #[error("{later} {later_at} is before {earlier} {earlier_at}: put them in order, or remove the line")]
    Backwards {
        /// Column that should be later.
        later: &'static str,
        /// Its seconds.
        later_at: String,
        /// Column that should be earlier.
        earlier: &'static str,
        /// Its seconds.
        earlier_at: String,
    },
    /// A GPU model stands in the file that nothing stands in for.
    #[error("no model stands in for GPU model {0}: use one of A10, G2, G3, P100, T4, V100M16 and V100M32, or remove it")]
    UnknownModel(String),
    /// No type can run a chosen pod.
    #[error("no instance type can run pod {pod}: offer a larger type of its models, cap its requests, or leave such pods out")]
    TooBig {
        /// Name of the pod.
        pod: String,
    },
    /// There are more copies than shifts.
    #[error("there are only {given} shifts: give one for each chosen pod and copy but the first, or let them be drawn")]
    NoShift {
        /// Number of shifts.
        given: usize,
    },
    /// No pod of the file makes demand.
    #[error("none of the {rows} scheduled GPU pods runs in the chosen time: start earlier, or choose longer runs")]
    NonePicked {
        /// Scheduled GPU pods of the file.
        rows: usize,
    },
}
