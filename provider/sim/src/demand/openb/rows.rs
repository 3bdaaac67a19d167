//! Lines of the trace as pods, in the trace's own seconds.

use super::{Fault, MODELS, What};
use crate::demand::{Resources, Service};

/// Columns that are read.
const COLUMNS: [&str; 10] = [
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];

/// Columns that no other file of pods has.
const OWN: [&str; 2] = ["num_gpu", "creation_time"];

/// Whether a line is the header of a trace.
pub(super) fn is_header(line: &str) -> bool {
    let names: Vec<&str> = columns(line);
    OWN.iter().all(|own| names.contains(own))
}

fn columns(header: &str) -> Vec<&str> {
    header.trim_start_matches('\u{feff}').split(',').map(str::trim).collect()
}

/// A scheduled pod that requests GPUs.
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) created: f64,
    pub(super) scheduled: f64,
    pub(super) deleted: f64,
    pub(super) requests: Resources,
    pub(super) gpu_milli: u32,
    pub(super) models: Vec<String>,
    pub(super) service: Service,
}

/// What the file says, and what is wrong with it.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) faults: Vec<Fault>,
}

/// Reads all lines.
pub(super) fn parse(text: &str) -> Rows {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let Some((first, header)) = lines.next() else {
        return Rows { rows: Vec::new(), faults: vec![Fault { line: 1, what: What::Empty }] };
    };
    let names = columns(header);
    let missing = COLUMNS.into_iter().filter(|column| !names.contains(column));
    let missing: Vec<Fault> = missing.map(|column| Fault { line: first, what: What::NoColumn(column) }).collect();
    if !missing.is_empty() {
        return Rows { rows: Vec::new(), faults: missing };
    }
    let mut read = Rows { rows: Vec::new(), faults: Vec::new() };
    for (number, line) in lines {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        let faults_before = read.faults.len();
        let mut line = Line { number, names: &names, values: &values, faults: &mut read.faults };
        let row = line.row();
        if read.faults.len() == faults_before {
            read.rows.extend(row);
        }
    }
    read
}

/// One line, and where its faults go.
struct Line<'a> {
    number: u64,
    names: &'a [&'a str],
    values: &'a [&'a str],
    faults: &'a mut Vec<Fault>,
}

impl Line<'_> {
    /// The pod of the line, unless it has no GPU or was never scheduled.
    fn row(&mut self) -> Option<Row> {
        if self.values == self.names {
            self.fault(What::SecondHeader);
            return None;
        }
        if self.values.len() != self.names.len() {
            self.fault(What::Fields { got: self.values.len(), expected: self.names.len() });
            return None;
        }
        let gpus = self.count("num_gpu");
        let milli_cpu = self.count("cpu_milli");
        let memory_mib = self.count("memory_mib");
        let gpu_milli = self.count("gpu_milli");
        let models = self.models();
        let created = self.seconds("creation_time");
        let is_scheduled = !self.text("scheduled_time").is_empty();
        if !is_scheduled || gpus == Some(0) {
            return None;
        }
        let scheduled = self.seconds("scheduled_time");
        let deleted = self.seconds("deletion_time");
        self.in_order(("creation_time", created?), ("scheduled_time", scheduled?));
        self.in_order(("scheduled_time", scheduled?), ("deletion_time", deleted?));
        Some(Row {
            line: self.number,
            name: self.text("name").to_owned(),
            created: created?,
            scheduled: scheduled?,
            deleted: deleted?,
            requests: Resources { gpus: gpus?, milli_cpu: milli_cpu?, memory_mib: memory_mib? },
            gpu_milli: gpu_milli?,
            models,
            service: match self.text("qos") {
                "LS" => Service::LatencySensitive,
                "BE" => Service::BestEffort,
                _ => Service::Other,
            },
        })
    }

    fn fault(&mut self, what: What) {
        self.faults.push(Fault { line: self.number, what });
    }

    fn text(&self, column: &str) -> &str {
        let at = self.names.iter().position(|name| *name == column);
        at.and_then(|at| self.values.get(at)).copied().unwrap_or_default()
    }

    fn seconds(&mut self, column: &'static str) -> Option<f64> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            let text = text.to_owned();
            self.fault(What::NoNumber { column, text });
        }
        number
    }

    fn count(&mut self, column: &'static str) -> Option<u32> {
        let number = self.seconds(column)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
        let count = number.round().min(f64::from(u32::MAX)) as u32;
        Some(count)
    }

    fn in_order(&mut self, (earlier, earlier_at): (&'static str, f64), (later, later_at): (&'static str, f64)) {
        if later_at < earlier_at {
            let (later_at, earlier_at) = (later_at.to_string(), earlier_at.to_string());
            self.fault(What::Backwards { later, later_at, earlier, earlier_at });
        }
    }

    /// Models that stand in for those of the line, each once.
    fn models(&mut self) -> Vec<String> {
        let mut models = Vec::new();
        let wanted = self.text("gpu_spec").split('|').filter(|model| !model.is_empty()).map(str::to_owned);
        for wanted in wanted.collect::<Vec<_>>() {
            let Some((_, stands_in)) = MODELS.iter().find(|(model, _)| *model == wanted) else {
                self.fault(What::UnknownModel(wanted));
                continue;
            };
            if !models.iter().any(|model| model == stands_in) {
                models.push((*stands_in).to_owned());
            }
        }
        models
    }
}
