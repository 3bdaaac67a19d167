//! Which GPUs a pool may use, and how much work they do.

use std::collections::{BTreeMap, BTreeSet};

use super::{Faults, grammar};
use crate::base::ids::GpuModel;
use crate::base::units::Percent;
use crate::market::offer::GpuFeature;
use crate::policy::{OneOrMany, Path, RawGpu, Throughput};

pub(super) fn counts(faults: &mut Faults, path: &Path, raw: Option<&OneOrMany>) -> BTreeSet<u32> {
    let mut check = |path: &Path, count: u32| {
        if count == 0 {
            faults.add(path, "is 0, below 1: name how many GPUs a node has");
        }
    };
    match raw {
        None => BTreeSet::new(),
        Some(OneOrMany::One(count)) => {
            check(path, *count);
            BTreeSet::from([*count])
        }
        Some(OneOrMany::Many(counts)) => {
            counts.iter().enumerate().for_each(|(at, count)| check(&path.index(at), *count));
            if counts.is_empty() {
                faults.add(path, "is empty: name at least one count, or leave it out for any");
            }
            faults.unrepeated(path, counts, u32::to_string);
            counts.iter().copied().collect()
        }
    }
}

pub(super) fn needs(faults: &mut Faults, path: &Path, raw: &[GpuFeature], counts: &BTreeSet<u32>) -> BTreeSet<GpuFeature> {
    faults.unrepeated(path, raw, GpuFeature::to_string);
    if raw.contains(&GpuFeature::Nvlink) && counts.last() == Some(&1) {
        faults.add(path, "has nvlink, but count allows one GPU a node, which has no other to link to: drop one of them");
    }
    raw.iter().copied().collect()
}

/// How much work a GPU does: as the operator measured for every model of the pool, or by a figure of the data sheets.
pub(super) fn throughput(faults: &mut Faults, gpu: &Path, raw: &RawGpu, models: &BTreeSet<GpuModel>) -> Throughput {
    let path = gpu.key("throughput");
    let given = match (&raw.throughput, raw.throughput_from) {
        (None, None) => return Throughput::Alike,
        (None, Some(figure)) => return Throughput::From(figure),
        (Some(given), from) => {
            if from.is_some() {
                faults.add(&gpu.key("throughputFrom"), "is given together with throughput: give one of them");
            }
            given
        }
    };
    for model in models.iter().filter(|model| !given.contains_key(model.as_str())) {
        faults.add(&path, format!("has no figure for {model}: add one, or remove it from models"));
    }
    let mut read = BTreeMap::new();
    for (name, number) in given {
        let path = path.key(name);
        if !raw.models.contains(name) {
            faults.add(&path, "is not among the pool's models: remove it, or add it to models");
        }
        let work = faults.keep(&path, grammar::work(number));
        let model = models.iter().find(|model| model.as_str() == name);
        read.extend(model.cloned().zip(work));
    }
    Throughput::Given(read)
}

/// The largest shares of the pool's nodes by model, those that are less than all.
pub(super) fn max_share(
    faults: &mut Faults,
    path: &Path,
    raw: &RawGpu,
    models: &BTreeSet<GpuModel>,
) -> BTreeMap<GpuModel, Percent> {
    let mut read = BTreeMap::new();
    for (name, text) in &raw.max_share {
        let path = path.key(name);
        if !raw.models.contains(name) {
            faults.add(&path, "is not among the pool's models: remove it, or add it to models");
        }
        let share = faults.keep(&path, grammar::share_of_nodes(text)).filter(|share| *share < Percent::ALL);
        let model = models.iter().find(|model| model.as_str() == name);
        read.extend(model.cloned().zip(share));
    }
    let sum: u32 = read.values().map(|share| u32::from(share.0)).sum();
    if !read.is_empty() && read.len() == models.len() && sum < 100 {
        faults.add(
            path,
            format!(
                "allows {sum}% of the nodes by all models together: raise a share, or remove the model that may be the rest"
            ),
        );
    }
    read
}
