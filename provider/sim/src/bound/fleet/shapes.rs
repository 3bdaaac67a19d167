//! Pod shapes, and how many pods of each run in every slot.

use std::collections::BTreeMap;

use super::Gpus;
use crate::demand::{Demand, Pod};

/// Sizes along GPU (in thousandths), CPU and memory.
pub(super) type Sizes = [u64; 3];

/// What tells pods apart: their size and the types that can run them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub(super) size: Sizes,
    /// Indices of the types that can run it, in order.
    pub(super) types: Vec<usize>,
}

/// Pods of a shape in a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Running {
    /// Index of the shape.
    pub(super) shape: usize,
    /// Mean number of pods over the slot.
    pub(super) mean: f64,
    /// Share of the slot in which at least one of them runs.
    pub(super) present: f64,
}

/// Demand by slot and shape.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) shapes: Vec<Shape>,
    /// Pods that run in each slot, by shape.
    pub(super) slots: Vec<Vec<Running>>,
    /// Number of pods that no type can run.
    pub(super) unplaceable: usize,
}

impl Profile {
    pub(super) fn of(demand: &Demand, gpus: Gpus, slot: f64) -> Self {
        let slots = index((demand.seconds / slot).ceil());
        let mut lives: BTreeMap<Shape, Vec<(f64, f64)>> = BTreeMap::new();
        let mut unplaceable = 0;
        for pod in &demand.pods {
            let shape = Shape { size: size(pod, gpus), types: demand.types_for(pod) };
            if shape.types.is_empty() {
                unplaceable += 1;
                continue;
            }
            let (from, until) = (pod.arrives.max(0.0), (pod.arrives + pod.runs).min(demand.seconds));
            if until > from {
                lives.entry(shape).or_default().push((from, until));
            }
        }
        let mut by_slot = vec![Vec::new(); slots];
        let mut shapes = Vec::new();
        for (shape, mut spans) in lives {
            spans.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            // Mean and presence, in seconds until the end.
            let mut seconds: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
            let mut seen = 0.0_f64;
            for (from, until) in spans {
                each_slot(from, until, slot, |at, part| seconds.entry(at).or_default().0 += part);
                each_slot(from.max(seen), until, slot, |at, part| seconds.entry(at).or_default().1 += part);
                seen = seen.max(until);
            }
            for (at, (running, present)) in seconds {
                if let Some(slots) = by_slot.get_mut(at) {
                    let present = (present / slot).min(1.0);
                    slots.push(Running { shape: shapes.len(), mean: running / slot, present });
                }
            }
            shapes.push(shape);
        }
        Self { shapes, slots: by_slot, unplaceable }
    }
}

/// Calls `part` with each slot that the span touches and the seconds it has there.
fn each_slot(from: f64, until: f64, slot: f64, mut part: impl FnMut(usize, f64)) {
    let mut at = index((from / slot).floor());
    let mut start = from;
    while start < until {
        let end = (number(at + 1) * slot).min(until);
        if end > start {
            part(at, end - start);
        }
        start = start.max(end);
        at += 1;
    }
}

fn size(pod: &Pod, gpus: Gpus) -> Sizes {
    let asked = pod.requests;
    let milli_gpus = match gpus {
        Gpus::Shared if asked.gpus == 1 => u64::from(pod.gpu_milli.min(1000)),
        Gpus::Whole | Gpus::Shared => u64::from(asked.gpus) * 1000,
    };
    [milli_gpus, asked.milli_cpu.into(), asked.memory_mib.into()]
}

/// A count as a float.
pub(super) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// A whole float that counts slots.
fn index(whole: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let index = whole.clamp(0.0, 1e9) as usize;
    index
}
