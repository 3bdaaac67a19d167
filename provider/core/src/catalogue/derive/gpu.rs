//! GPU requirements of a pool apart from count and memory: features, and work per GPU.

use super::Exclusion;
use crate::base::ids::GpuModel;
use crate::base::units::Work;
use crate::market::offer::{GpuFeature, GpuFigure, GpuSpec, InstanceSpec};
use crate::market::price::PriceBook;
use crate::market::sharing::{PerGpu, Shares};
use crate::policy::{Pool, Throughput};

/// A slice's work is kept in millionths of what the whole GPU's is told in, so that a seventh of little is still told apart.
const OF_A_SLICE: u128 = 1_000_000;

/// What one GPU of the pool's slowest model does, or one slice of it where the pool shares GPUs, in whatever unit the pool's throughput
/// has, a slice's in millionths of it; `None` where it is told of none.
pub(super) fn slowest(pool: &Pool, prices: &PriceBook) -> Option<u128> {
    let of_one = |model: &GpuModel, gpu: Option<&GpuSpec>| {
        let told = told(pool, model, gpu)?;
        let Some(sharing) = &pool.sharing else { return Some(u128::from(told)) };
        let per_gpu = sharing.split.per_gpu(gpu).ok()?;
        Some(in_use(pool, told, &per_gpu) / u128::from(per_gpu.slices))
    };
    let of_model = |model: &GpuModel| match prices.gpu(model) {
        [] => of_one(model, None),
        sizes => sizes.iter().filter_map(|gpu| of_one(model, Some(gpu))).filter(|work| *work > 0).min(),
    };
    pool.models.iter().filter_map(of_model).filter(|work| *work > 0).min()
}

/// What one whole GPU of a model does, in whatever unit the pool's throughput has.
fn told(pool: &Pool, model: &GpuModel, gpu: Option<&GpuSpec>) -> Option<u64> {
    match &pool.throughput {
        Throughput::Alike => None,
        Throughput::Given(given) => given.get(model).map(|work| u64::from(work.0)),
        Throughput::From(figure) => gpu?.figure(*figure),
    }
}

/// What the slices of a GPU do together, in millionths: their part of its processors, or of its memory where that is what counts.
fn in_use(pool: &Pool, told: u64, per_gpu: &PerGpu) -> u128 {
    let part = match pool.throughput {
        Throughput::From(GpuFigure::Bandwidth) => per_gpu.memory,
        _ => per_gpu.compute,
    };
    u128::from(told) * OF_A_SLICE * u128::from(part.of) / u128::from(part.whole.max(1))
}

/// The work of a node; a slice of a GPU does its share.
pub(super) fn work(
    pool: &Pool,
    spec: &InstanceSpec,
    gpu: Option<&GpuSpec>,
    slowest: Option<u128>,
    shares: Option<&Shares>,
) -> Result<Option<Work>, Exclusion> {
    let unknown = match &pool.throughput {
        Throughput::Alike => return Ok(None),
        Throughput::Given(_) => None,
        Throughput::From(figure) => Some(*figure),
    };
    let of_one = told(pool, &spec.gpu_model, gpu).map(|told| match shares {
        None => u128::from(told),
        Some(shares) => in_use(pool, told, &shares.per_gpu),
    });
    let (of_one, slowest) = match (of_one, slowest, unknown) {
        (Some(of_one), Some(slowest), _) if of_one > 0 && slowest > 0 => (of_one, slowest),
        (_, _, Some(figure)) => return Err(Exclusion::UnknownFigure(figure)),
        // A policy gives every model of its pool a throughput above zero.
        (_, _, None) => return Ok(None),
    };
    // Thousandths of a GPU to millionths of a unit.
    let work = of_one * u128::from(spec.gpus.0) * 1_000 / slowest;
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
