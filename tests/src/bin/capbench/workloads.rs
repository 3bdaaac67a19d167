//! Demands of pods: drawn ones, or those of a published list, and the instance types that they may have.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_service::price_tables;
use stoker_sim::demand::openb::{self, Part, Selection};
use stoker_sim::demand::{Demand, InstanceType, Resources, synthetic, types};

use crate::stoker::Variant;

/// Models of the demand. The tables call both V100s by one name; a policy here tells them apart.
pub(crate) const MODELS: [&str; 6] = ["T4", "L4", "A10G", "L40S", "V100", LARGE_V100];
const LARGE_V100: &str = "V100-32GB";

/// The day whose prices drawn demand has.
const PRICED_ON: &str = "2026-11-01T00:00:00Z";

/// The columns of a file of types, in this order.
const COLUMNS: [&str; 6] = ["name", "model", "gpus", "milli_cpu", "memory_mib", "usd_per_hour"];

/// A demand by its name.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// Its name above a column.
    pub(crate) short: String,
    pub(crate) demand: Arc<Demand>,
}

impl Workload {
    fn new(short: &str, more: &str, demand: Demand) -> Self {
        Self { name: format!("{short}{more}"), short: short.to_owned(), demand: Arc::new(demand) }
    }
}

/// Demand that ships with the project.
pub(crate) fn drawn(days: u32, sold: &[InstanceType]) -> Vec<Workload> {
    vec![
        Workload::new("mixed", ", drawn", synthetic::mixed(1, days, sold)),
        Workload::new("churn", ", drawn", synthetic::churn(1, days, sold)),
    ]
}

/// Alibaba's list of pods as three workloads.
pub(crate) fn of_trace(trace: &Path, part: Part, sold: &[InstanceType]) -> Result<Vec<Workload>> {
    let of_part = match part {
        Part::Whole => "",
        Part::FirstHalf => ", first half",
        Part::SecondHalf => ", second half",
    };
    [("W1", Selection::whole()), ("W1n", Selection::capped()), ("W2", Selection::churn())]
        .into_iter()
        .map(|(name, selection)| {
            let read = openb::read(trace, sold, &Selection { part, ..selection });
            let read = read.with_context(|| trace.display().to_string())?;
            let more = format!("{of_part}, {} pods left out", read.left_out.len());
            Ok(Workload::new(name, &more, read.demand))
        })
        .collect()
}

/// A line of a file of types.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeLine {
    name: String,
    model: String,
    gpus: u32,
    milli_cpu: u32,
    memory_mib: u32,
    usd_per_hour: String,
}

impl TypeLine {
    fn read(self) -> Result<InstanceType> {
        let Self { name, model, gpus, milli_cpu, memory_mib, usd_per_hour } = self;
        let hourly = UsdPerHour::parse_usd(&usd_per_hour)?;
        ensure!(!name.is_empty(), "a type without a name: give it the one that it is sold under");
        ensure!(MODELS.contains(&model.as_str()), "no pod runs on model {model:?}: write one of {}", MODELS.join(", "));
        ensure!(gpus > 0 && milli_cpu > 0 && memory_mib > 0, "{name} has nothing for pods: write what it leaves to them");
        ensure!(hourly.0 > 0, "{name} costs nothing: write its price");
        let allocatable = Resources { gpus, milli_cpu, memory_mib };
        Ok(InstanceType { name, model, allocatable, hourly: UsdMicros(hourly.0) })
    }
}

/// The types of a file; all that is wrong with it at once.
pub(crate) fn read_types(path: &Path) -> Result<Vec<InstanceType>> {
    let file = path.display();
    let text = std::fs::read(path).with_context(|| format!("--types {file}"))?;
    let mut lines = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_slice());
    let (mut types, mut faults): (Vec<InstanceType>, Vec<String>) = (Vec::new(), Vec::new());
    let head = lines.headers().with_context(|| file.to_string())?.clone();
    ensure!(head.iter().eq(COLUMNS), "{file}:1: begin with the columns {}", COLUMNS.join(","));
    for line in lines.records() {
        let at = |position: Option<&csv::Position>| format!("{file}:{}", position.map_or(1, csv::Position::line));
        let (at, read) = match line {
            Ok(line) => (at(line.position()), line.deserialize(Some(&head)).map_err(Into::into).and_then(TypeLine::read)),
            Err(error) => (at(error.position()), Err(error.into())),
        };
        match read {
            Ok(of) if types.iter().any(|other| other.name == of.name) => {
                faults.push(format!("{at}: {} is in the list twice: leave one out", of.name));
            }
            Ok(of) => types.push(of),
            Err(error) => faults.push(format!("{at}: {error}")),
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    ensure!(!types.is_empty(), "{file}: has no type: write a line for each");
    Ok(types)
}

/// The types that Stoker's tables have of those models, as they are sold in us-east-1 and us-west-2.
pub(crate) fn sold(models: &[&str]) -> Result<Vec<InstanceType>> {
    // On one day, so that the figures are the same whenever they are asked for.
    let book = price_tables::prices(None, PRICED_ON.parse()?)?;
    let known: Vec<&str> = models.iter().copied().filter(|model| *model != LARGE_V100).collect();
    let catalogue = types::derive(&Variant::DEFAULT.policy(&known)?, &book)?;
    let mut sold = types::instance_types(&catalogue);
    for of in sold.iter_mut().filter(|of| of.name.starts_with("p3dn.")) {
        LARGE_V100.clone_into(&mut of.model);
    }
    Ok(sold)
}
