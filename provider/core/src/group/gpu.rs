//! What a pool asks of its GPUs beside their number and memory: what they can do, and how much work.

use super::Exclusion;
use crate::offer::{GpuFeature, GpuSpec, InstanceSpec};
use crate::policy::{Pool, Throughput};
use crate::price::PriceBook;
use crate::units::Work;

/// What one whole GPU of the pool's slowest model does, in whatever unit the pool's throughput has; `None` where it is told of none.
pub(super) fn slowest(pool: &Pool, prices: &PriceBook) -> Option<u64> {
    match &pool.throughput {
        Throughput::Alike => None,
        Throughput::Given(given) => given.values().map(|work| u64::from(work.0)).min(),
        Throughput::From(figure) => {
            let sizes = pool.models.iter().flat_map(|model| prices.gpu(model));
            sizes.filter_map(|gpu| gpu.figure(*figure)).filter(|figure| *figure > 0).min()
        }
    }
}

/// The work of a node; a slice of a GPU does its share.
pub(super) fn work(
    pool: &Pool,
    spec: &InstanceSpec,
    gpu: Option<&GpuSpec>,
    slowest: Option<u64>,
) -> Result<Option<Work>, Exclusion> {
    let (of_one, unknown) = match &pool.throughput {
        Throughput::Alike => return Ok(None),
        Throughput::Given(given) => (given.get(&spec.gpu_model).map(|work| u64::from(work.0)), None),
        Throughput::From(figure) => (gpu.and_then(|gpu| gpu.figure(*figure)), Some(*figure)),
    };
    let (of_one, slowest) = match (of_one, slowest, unknown) {
        (Some(of_one), Some(slowest), _) if of_one > 0 && slowest > 0 => (of_one, slowest),
        (_, _, Some(figure)) => return Err(Exclusion::UnknownFigure(figure)),
        // A policy gives every model of its pool a throughput above nought.
        (_, _, None) => return Ok(None),
    };
    // Thousandths of a GPU to millionths of a unit.
    let work = u128::from(of_one) * u128::from(spec.gpus.0) * 1_000 / u128::from(slowest);
    Ok(Some(Work(u64::try_from(work).unwrap_or(u64::MAX).max(1))))
}

/// Whether the GPUs can do what the pool needs. Unknown counts against them only where the pool asks.
pub(super) fn can_do(pool: &Pool, spec: &InstanceSpec, gpu: Option<&GpuSpec>) -> Result<(), Exclusion> {
    if let Some(want) = pool.min_compute_capability {
        let has = gpu.and_then(|gpu| gpu.compute_capability).ok_or(Exclusion::UnknownCapability { want })?;
        if has < want {
            return Err(Exclusion::ComputeCapability { has, want });
        }
    }
    for &need in &pool.needs {
        // One GPU has no other to link to.
        let alone = need == GpuFeature::Nvlink && spec.advertised_gpus() < 2;
        match gpu.and_then(|gpu| gpu.has(need)) {
            Some(true) if !alone => {}
            None if !alone => return Err(Exclusion::UnknownFeature(need)),
            _ => return Err(Exclusion::Lacks(need)),
        }
    }
    Ok(())
}
