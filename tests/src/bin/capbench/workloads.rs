//! Demands of pods: drawn ones, or those of a published list, and the instance types that they may have.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_service::price_tables;
use stoker_sim::demand::openb::{self, Part, Selection};
use stoker_sim::demand::{Demand, InstanceType, Resources, synthetic, types};

use crate::stoker::Variant;

/// Models of the demand. The tables call both V100s by one name; a policy here tells them apart.
pub(crate) const MODELS: [&str; 6] = ["T4", "L4", "A10G", "L40S", "V100", LARGE_V100];
const LARGE_V100: &str = "V100-32GB";

/// The columns of a file of types, in this order.
const COLUMNS: &str = "name,model,gpus,milli_cpu,memory_mib,usd_per_hour";

/// A demand by its name.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) demand: Arc<Demand>,
}

impl Workload {
    fn new(name: &str, demand: Demand) -> Self {
        Self { name: name.to_owned(), demand: Arc::new(demand) }
    }

    /// Its name in letters and digits.
    pub(crate) fn file_name(&self) -> String {
        let words = self.name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-").to_lowercase()
    }
}

/// Demand that ships with the project.
pub(crate) fn drawn(days: u32, sold: &[InstanceType]) -> Vec<Workload> {
    vec![
        Workload::new("drawn, mixed", synthetic::mixed(1, days, sold)),
        Workload::new("drawn, churn", synthetic::churn(1, days, sold)),
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
            let name = format!("{name}{of_part}, {} pods left out", read.left_out.len());
            Ok(Workload::new(&name, read.demand))
        })
        .collect()
}

/// The types of a file.
pub(crate) fn read_types(path: &Path) -> Result<Vec<InstanceType>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().zip(1..);
    let head = lines.next().map(|(line, _)| line);
    anyhow::ensure!(head == Some(COLUMNS), "{}:1: write the columns {COLUMNS}", path.display());
    let read = |(line, number): (&str, usize)| -> Result<InstanceType> {
        let at = || format!("{}:{number}", path.display());
        let fields: Vec<&str> = line.split(',').collect();
        let [name, model, gpus, milli_cpu, memory_mib, hourly] =
            <[&str; 6]>::try_from(fields).map_err(|found| anyhow!("{}: {} columns for the six", at(), found.len()))?;
        let whole = |text: &str| text.parse::<u32>().with_context(|| format!("{}: {text:?} is no number", at()));
        let allocatable = Resources { gpus: whole(gpus)?, milli_cpu: whole(milli_cpu)?, memory_mib: whole(memory_mib)? };
        let hourly = UsdPerHour::parse_usd(hourly).map_err(|error| anyhow!("{}: {error}", at()))?;
        Ok(InstanceType { name: name.to_owned(), model: model.to_owned(), allocatable, hourly: UsdMicros(hourly.0) })
    };
    lines.map(read).collect()
}

/// The types that Stoker's tables have of those models, as they are sold in us-east-1 and us-west-2.
pub(crate) fn sold(models: &[&str]) -> Result<Vec<InstanceType>> {
    let book = price_tables::prices(None, jiff::Timestamp::now())?;
    let known: Vec<&str> = models.iter().copied().filter(|model| *model != LARGE_V100).collect();
    let catalogue = types::derive(&Variant::DEFAULT.policy(&known)?, &book)?;
    let mut sold = types::instance_types(&catalogue);
    for of in sold.iter_mut().filter(|of| of.name.starts_with("p3dn.")) {
        LARGE_V100.clone_into(&mut of.model);
    }
    Ok(sold)
}
