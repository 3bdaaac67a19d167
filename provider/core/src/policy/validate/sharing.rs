//! How GPUs are shared, as far as the policy alone tells. What the hardware lacks is found against the price tables.

use std::collections::{BTreeMap, BTreeSet};

use super::Faults;
use crate::base::ids::GpuModel;
use crate::base::kinds::Workload;
use crate::base::text::quoted;
use crate::market::offer::PODS;
use crate::market::price::PriceBook;
use crate::market::sharing::{Acknowledgement, MigLayout, MigProfile, MigStrategy, Misfit, NoProfile, Sharing, Split};
use crate::policy::{Path, RawMig, RawPool, RawSharing};

/// The sharing of a pool: `None` is a fault, `Some(None)` a pool of whole GPUs.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn sharing(faults: &mut Faults, path: &Path, pool: &RawPool) -> Option<Option<Sharing>> {
    let Some(raw) = &pool.sharing else { return Some(None) };
    let split = split(faults, path, raw);
    faults.unrepeated(&path.key("workloads"), &raw.workloads, |workload| workload.as_str().to_owned());
    faults.unrepeated(&path.key("acknowledge"), &raw.acknowledge, |name| name.as_str().to_owned());
    let mut workloads: BTreeSet<Workload> = raw.workloads.iter().copied().collect();
    if !raw.workloads.is_empty() && !workloads.contains(&pool.workload) {
        let message = format!("lacks the pool's own workload: add {}", pool.workload.as_str());
        faults.add(&path.key("workloads"), message);
    }
    workloads.insert(pool.workload);
    let acknowledged = raw.acknowledge.iter().copied().collect();
    acknowledge(faults, path, raw, &workloads, &acknowledged);
    Some(Some(Sharing { split: split?, workloads, acknowledged }))
}

fn split(faults: &mut Faults, path: &Path, raw: &RawSharing) -> Option<Split> {
    if let (Some(_), Some(_)) = (&raw.mig, raw.time_slicing) {
        let message =
            "has mig and timeSlicing, and pods that take turns on a MIG instance lose the isolation it is for: name one";
        faults.add(path, message);
    }
    if raw.mig.is_none() && raw.mig_strategy.is_some() {
        faults.add(&path.key("migStrategy"), "names MIG instances, and mig makes none: remove it, or name mig");
    }
    if raw.time_slicing.is_none() && raw.rename_by_default.is_some() {
        faults.add(&path.key("renameByDefault"), "applies to time-sliced GPUs: remove it, or name timeSlicing");
    }
    if let Some(mig) = &raw.mig {
        let layout = layout(faults, &path.key("mig"), mig)?;
        if raw.mig_strategy == Some(MigStrategy::Single) && !layout.is_uniform() {
            let message = "single needs instances that are all alike: write mixed, or a layout such as all-1g.10gb";
            faults.add(&path.key("migStrategy"), message);
        }
        let usual = if layout.is_uniform() { MigStrategy::Single } else { MigStrategy::Mixed };
        return Some(Split::Mig { layout, strategy: raw.mig_strategy.unwrap_or(usual) });
    }
    let Some(replicas) = raw.time_slicing else {
        faults.add(path, "names no way to share: name mig or timeSlicing, or leave sharing out for whole GPUs");
        return None;
    };
    let said = match replicas {
        0 => Some("is 0, and no pod would get a turn: write how many pods take turns on a GPU, from 2".to_owned()),
        1 => Some("is 1, which shares nothing: write how many pods take turns on a GPU, or leave it out".to_owned()),
        2..=PODS => None,
        _ => Some(format!("{replicas} is above {PODS}, more pods than a node takes: lower it")),
    };
    match said {
        Some(said) => {
            faults.add(&path.key("timeSlicing"), said);
            None
        }
        None => Some(Split::TimeSlicing { replicas, renamed: raw.rename_by_default.unwrap_or(false) }),
    }
}

fn layout(faults: &mut Faults, path: &Path, raw: &RawMig) -> Option<MigLayout> {
    match raw {
        RawMig::Named(name) => {
            let read = named(name).ok_or_else(|| {
                format!(
                    "{} is not a MIG layout: write all-balanced, all-1g.10gb, or instances such as {{ 1g.10gb: 2 }}",
                    quoted(name)
                )
            });
            faults.keep(path, read)
        }
        RawMig::Own(own) => {
            if own.is_empty() {
                faults.add(path, "is empty: name at least one MIG profile, such as 1g.10gb");
                return None;
            }
            let mut read = BTreeMap::new();
            for (text, number) in own {
                let path = path.key(text);
                let profile = faults.keep(
                    &path,
                    text.parse::<MigProfile>().map_err(|NoProfile(_)| "is not a MIG profile: write it like 1g.10gb".into()),
                );
                if *number == 0 {
                    faults.add(&path, "is 0: write how many instances of it every GPU has, or remove it");
                }
                read.extend(profile.map(|profile| (profile, *number)));
            }
            if let Some(length) = MigLayout::too_long(&read) {
                faults.add(path, format!("makes a label of {length} characters, more than 63: name fewer profiles"));
            }
            (read.len() == own.len()).then_some(MigLayout::Own(read))
        }
    }
}

fn named(name: &str) -> Option<MigLayout> {
    match name.strip_prefix("all-")? {
        "balanced" => Some(MigLayout::Balanced),
        profile => profile.parse().ok().map(MigLayout::All),
    }
}

/// What must be taken on by name, and nothing else.
fn acknowledge(
    faults: &mut Faults,
    path: &Path,
    raw: &RawSharing,
    workloads: &BTreeSet<Workload>,
    acknowledged: &BTreeSet<Acknowledgement>,
) {
    let inference = workloads.contains(&Workload::Inference);
    let sliced = inference && raw.time_slicing.is_some();
    let mixed = inference && workloads.contains(&Workload::Training);
    for (name, applies, why) in [
        (
            Acknowledgement::TimeSlicedInference,
            sliced,
            "time-slices inference: each answer waits for the other pods' turns, and one pod can take the memory of all: use mig, \
             whole GPUs",
        ),
        (
            Acknowledgement::MixedWorkloads,
            mixed,
            "puts training and inference on one GPU, where training slows the answers: give each a pool of its own",
        ),
    ] {
        let word = name.as_str();
        match (applies, acknowledged.contains(&name)) {
            (true, false) => faults.add(path, format!("{why}, or say acknowledge: [{word}]")),
            (false, true) => {
                faults.add(&path.key("acknowledge"), format!("names {word}, which this pool does not do: remove it"));
            }
            _ => {}
        }
    }
}

/// What the GPUs of a pool lack for the way it shares them. A model that comes in several sizes must have it in one: the others are left
/// out, with the reason. Of a model that no source tells of nothing is said here: its places are left out.
pub(super) fn check_hardware(faults: &mut Faults, path: &Path, pool: &RawPool, book: &PriceBook) {
    let Some(raw) = &pool.sharing else { return };
    // What is wrong with the layout itself is told elsewhere.
    let Some(Split::Mig { layout, strategy }) = split(&mut Faults::default(), path, raw) else { return };
    let split = Split::Mig { layout, strategy };
    let models = pool.gpu.models.iter().filter_map(|name| GpuModel::new(name).ok());
    for model in models {
        let sizes = book.gpu(&model);
        let misfits: Vec<Misfit> = sizes.iter().filter_map(|gpu| split.per_gpu(Some(gpu)).err()).collect();
        // A size that has the profiles, only not so many, says the most, and else the largest.
        let told = misfits.iter().find(|misfit| matches!(misfit, Misfit::TooMany { .. })).or(misfits.last());
        let Some(misfit) = told.filter(|_| misfits.len() == sizes.len()) else { continue };
        let cure = match misfit {
            Misfit::Unknown => continue,
            Misfit::NoMig => "remove it from gpu.models, or use timeSlicing",
            Misfit::TooMany { .. } => "name fewer, or remove it from gpu.models",
            Misfit::Lacks { .. } | Misfit::NotBalanced | Misfit::PartOfGpu => {
                "remove it from gpu.models, or name another layout"
            }
        };
        faults.add(&path.key("mig"), format!("does not fit {model}, which {misfit}: {cure}"));
    }
}
