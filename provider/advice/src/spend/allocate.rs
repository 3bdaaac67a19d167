//! Allocation: each second of a node over the pods that held its GPUs.

use stoker_core::base::shares::share_out;

use super::PodTime;

/// A whole node, in the parts that it is split into.
pub(super) const WHOLE: i128 = super::PARTS as i128;

/// Who held a part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A pod, by its place in the list.
    Pod(usize),
    /// No pod.
    Rest,
}

/// Splits the time of a node between two moments over the pods that held it then: each by its share of what the node advertises. What
/// nobody knows the size of gets what the others leave, in equal parts. The parts of a second add up to [`WHOLE`].
///
/// `pods` are those of the node, by when they came. Calls `each` with the length of a time, and one part of a second in it.
pub(super) fn split((since, until): (i64, i64), units: u32, pods: &[PodTime], mut each: impl FnMut((i64, i64), Part, i128)) {
    let within = |pod: &PodTime| pod.since < until && pod.until > since;
    let mut moments: Vec<i64> = vec![since, until];
    let held: Vec<(usize, &PodTime)> = pods.iter().enumerate().filter(|(_, pod)| within(pod)).collect();
    moments.extend(held.iter().flat_map(|(_, pod)| [pod.since.max(since), pod.until.min(until)]));
    moments.sort_unstable();
    moments.dedup();
    let (mut active, mut next): (Vec<(usize, &PodTime)>, usize) = (Vec::new(), 0);
    for (from, to) in moments.iter().zip(moments.iter().skip(1)) {
        active.retain(|(_, pod)| pod.until > *from);
        while let Some(pod) = held.get(next).filter(|(_, pod)| pod.since <= *from) {
            active.push(*pod);
            next += 1;
        }
        active.retain(|(_, pod)| pod.until > *from);
        let taken: i128 = active.iter().filter_map(|(_, pod)| pod.units).map(i128::from).sum();
        // More than the node has, as of pods that were bound twice: they share all of it.
        let free = (i128::from(units) - taken).max(0);
        let unknown = i128::try_from(active.iter().filter(|(_, pod)| pod.units.is_none()).count()).unwrap_or(1);
        // Weights are multiplied by the number of those of unknown size, so that what is left divides evenly among them.
        let weight = |pod: &PodTime| pod.units.map_or(free, |units| i128::from(units) * unknown.max(1));
        let mut weights: Vec<i128> = active.iter().map(|(_, pod)| weight(pod)).collect();
        weights.push(if unknown > 0 { 0 } else { free });
        if weights.iter().all(|weight| *weight == 0) {
            weights.fill(0);
            if let Some(rest) = weights.last_mut() {
                *rest = 1;
            }
        }
        let holders = active.iter().map(|(at, _)| Part::Pod(*at)).chain([Part::Rest]);
        for (part, share) in holders.zip(share_out(WHOLE, &weights)).filter(|(_, share)| *share > 0) {
            each((*from, *to), part, share);
        }
    }
}
