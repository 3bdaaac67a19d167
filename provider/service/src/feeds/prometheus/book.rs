//! What the feed knows of each GPU from round to round: what is new, what has gone silent, which errors happened since.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{DriverState, GpuReading, Happening, Measured, NodeEvent, NodeReading, Source};

use super::ask::Row;
use super::labels::{Dropped, Drops, INDEX, MODEL, Nodes, Of, PCI, PROFILE};
use super::levels::Levels;

/// How long a GPU that is told of no more is kept, as unknown: a node with a lost GPU must not look like one with fewer. A node that is
/// gone is forgotten by then.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// Errors of one XID on one GPU in one round that are told one by one; what is told more often than this is told enough.
const MOST_REPEATS: u64 = 8;

/// The answers of one round.
pub(super) struct Round<'a> {
    /// When each GPU was last sampled.
    pub(super) stamps: &'a [Row],
    /// The levels.
    pub(super) levels: &'a Levels,
    /// How many errors of each XID were counted of late; `None` where that was not answered.
    pub(super) xids: Option<&'a [Row]>,
    /// By our clock, when the stamps were asked for.
    pub(super) asked: Timestamp,
}

/// A reading of a node, to be passed on.
pub(super) type Told = (NodeName, NodeReading, Vec<NodeEvent>);

/// What is known of every GPU.
#[derive(Default)]
pub(super) struct Book {
    nodes: BTreeMap<NodeName, BTreeMap<GpuUuid, Gpu>>,
}

struct Gpu {
    /// When it was last sampled, in Unix milliseconds of Prometheus's clock: what is not newer is not news.
    stamp: i64,
    /// The same by our clock.
    at: Timestamp,
    /// Whether its levels count; the last sample is too old where they do not.
    live: bool,
    reading: GpuReading,
    errors: Errors,
}

/// What was told of errors so far.
#[derive(Default)]
struct Errors {
    /// The last error there was, which stays until another one.
    last: Option<u32>,
    /// How many there were of each in the exporter's window.
    counts: BTreeMap<u32, u64>,
    /// Whether the exporter counts at all; then the last one says nothing more.
    counted: bool,
}

/// A GPU as this round tells of it.
struct Seen {
    node: NodeName,
    stamp: i64,
    at: Timestamp,
    instances: BTreeMap<u32, String>,
    index: u32,
    name: String,
    pci_bus_id: String,
}

impl Book {
    /// Takes a round in, where there is one; lets what is too old lapse; and says what is to be passed on: a reading of each node on which
    /// anything is new.
    pub(super) fn take(
        &mut self,
        round: Option<&Round<'_>>,
        (nodes, labels): (&Nodes, &[String]),
        stale_after: SignedDuration,
        now: Timestamp,
        drops: &mut Drops,
    ) -> Vec<Told> {
        let mut events: BTreeMap<NodeName, Vec<NodeEvent>> = BTreeMap::new();
        let mut news = BTreeSet::new();
        if let Some(round) = round {
            let counts = round.xids.map(|rows| counts(rows, drops));
            let no_errors = BTreeMap::new();
            for (gpu, seen) in seen(round, (nodes, labels), stale_after, drops) {
                let node = seen.node.clone();
                let known = self.nodes.entry(node.clone()).or_default();
                if known.get(&gpu).is_some_and(|known| known.stamp >= seen.stamp) {
                    continue;
                }
                let reading = GpuReading {
                    index: seen.index,
                    name: seen.name,
                    pci_bus_id: seen.pci_bus_id,
                    ..round.levels.gpu(&gpu, &seen.instances)
                };
                let (first, mut errors) = match known.remove(&gpu) {
                    None => (true, Errors::default()),
                    Some(before) => (false, before.errors),
                };
                let happened = errors.since(
                    round.levels.xid(&gpu, &seen.instances),
                    counts.as_ref().map(|counts| counts.get(&gpu).unwrap_or(&no_errors)),
                );
                // What was there when the GPU was first seen happened nobody knows when.
                if !first {
                    let event =
                        |code| NodeEvent { arrived: now, at: seen.at, what: Happening::Xid { code, gpu: Some(gpu.clone()) } };
                    events.entry(node.clone()).or_default().extend(happened.into_iter().map(event));
                }
                known.insert(gpu, Gpu { stamp: seen.stamp, at: seen.at, live: true, reading, errors });
                news.insert(node);
            }
        }
        news.extend(self.lapse(stale_after, now));
        self.forget(now);
        let told = news.into_iter().filter_map(|node| {
            let reading = self.reading(&node, now)?;
            let events = events.remove(&node).unwrap_or_default();
            Some((node, reading, events))
        });
        told.collect()
    }

    /// How many GPUs are told of, and how many were and are not.
    pub(super) fn count(&self) -> (usize, usize) {
        let all = self.nodes.values().flat_map(BTreeMap::values);
        let live = all.clone().filter(|gpu| gpu.live).count();
        (live, all.count() - live)
    }

    /// Takes the levels of GPUs whose last sample is too old away. The nodes that they are on.
    fn lapse(&mut self, stale_after: SignedDuration, now: Timestamp) -> Vec<NodeName> {
        let mut lapsed = Vec::new();
        for (node, gpus) in &mut self.nodes {
            let mut any = false;
            for gpu in gpus.values_mut().filter(|gpu| gpu.live && now.duration_since(gpu.at) > stale_after) {
                gpu.live = false;
                gpu.reading = GpuReading {
                    index: gpu.reading.index,
                    name: std::mem::take(&mut gpu.reading.name),
                    pci_bus_id: std::mem::take(&mut gpu.reading.pci_bus_id),
                    ..GpuReading::default()
                };
                any = true;
            }
            if any {
                lapsed.push(node.clone());
            }
        }
        lapsed
    }

    fn forget(&mut self, now: Timestamp) {
        for gpus in self.nodes.values_mut() {
            gpus.retain(|_, gpu| now.duration_since(gpu.at) <= REMEMBERED);
        }
        self.nodes.retain(|_, gpus| !gpus.is_empty());
    }

    /// The reading of a node as it now stands. It is as old as the newest sample in it; one in which nothing is known is as of now.
    fn reading(&self, node: &NodeName, now: Timestamp) -> Option<NodeReading> {
        let gpus = self.nodes.get(node)?;
        let newest = gpus.values().filter(|gpu| gpu.live).map(|gpu| gpu.at).max();
        Some(NodeReading {
            arrived: newest.unwrap_or(now),
            source: Source::Prometheus,
            driver: if newest.is_some() { DriverState::Ready } else { DriverState::Unknown },
            counted: Measured::default(),
            gpus: gpus.iter().map(|(uuid, gpu)| (uuid.clone(), gpu.reading.clone())).collect(),
            gates: BTreeMap::new(),
        })
    }
}

impl Errors {
    /// Takes in what is told now, and says which errors happened since the last time. The exporter's counts over a window are believed
    /// where it has any: they tell repeats. Else the last error tells, where it is another one than before.
    fn since(&mut self, last: Option<u32>, counts: Option<&BTreeMap<u32, u64>>) -> Vec<u32> {
        let mut happened = Vec::new();
        if let Some(counts) = counts {
            self.counted |= !counts.is_empty();
            for (code, count) in counts {
                let before = self.counts.get(code).copied().unwrap_or(0);
                let more = count.saturating_sub(before).min(MOST_REPEATS);
                happened.extend((0..more).map(|_| *code));
            }
            self.counts.clone_from(counts);
        }
        if let Some(last) = last {
            if !self.counted && last != 0 && self.last != Some(last) {
                happened.push(last);
            }
            self.last = Some(last);
        }
        happened
    }
}

/// How many errors of each XID each GPU had.
fn counts(rows: &[Row], drops: &mut Drops) -> BTreeMap<GpuUuid, BTreeMap<u32, u64>> {
    let mut counts: BTreeMap<GpuUuid, BTreeMap<u32, u64>> = BTreeMap::new();
    for row in rows {
        let Some(of) = Of::told_by(row) else {
            *drops.entry(Dropped::NoGpu).or_default() += 1;
            continue;
        };
        let code = row.label("xid").and_then(|code| code.parse().ok());
        let count = whole(row.number());
        let (Some(code), Some(count)) = (code, count) else {
            *drops.entry(Dropped::NoXid).or_default() += 1;
            continue;
        };
        let known = counts.entry(of.gpu).or_default().entry(code).or_default();
        *known = (*known).max(count);
    }
    counts
}

/// A count, where it is one.
fn whole(number: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and a million million")]
    (0.0..=1e12).contains(&number).then_some(number as u64)
}

/// The GPUs that this round tells of, each on the one node that has it.
fn seen(
    round: &Round<'_>,
    (nodes, labels): (&Nodes, &[String]),
    stale_after: SignedDuration,
    drops: &mut Drops,
) -> BTreeMap<GpuUuid, Seen> {
    let mut seen: BTreeMap<GpuUuid, Seen> = BTreeMap::new();
    let mut claimed_twice = BTreeSet::new();
    for row in round.stamps {
        let one = match one(row, round.asked, (nodes, labels), stale_after) {
            Ok(one) => one,
            Err(why) => {
                *drops.entry(why).or_default() += 1;
                continue;
            }
        };
        let (gpu, one) = one;
        match seen.get_mut(&gpu) {
            None => {
                seen.insert(gpu, one);
            }
            Some(other) if other.node != one.node => {
                *drops.entry(Dropped::Conflict).or_default() += 1;
                claimed_twice.insert(gpu);
            }
            // Another instance of it, or the same from an exporter that was restarted.
            Some(other) => {
                other.instances.extend(one.instances);
                if one.stamp > other.stamp {
                    (other.stamp, other.at) = (one.stamp, one.at);
                }
            }
        }
    }
    seen.retain(|gpu, _| !claimed_twice.contains(gpu));
    seen
}

fn one(
    row: &Row,
    asked: Timestamp,
    (nodes, labels): (&Nodes, &[String]),
    stale_after: SignedDuration,
) -> Result<(GpuUuid, Seen), Dropped> {
    let of = Of::told_by(row).ok_or(Dropped::NoGpu)?;
    let node = nodes.of(row, labels)?;
    let (stamp, at) = sampled(row, asked)?;
    if asked.duration_since(at) > stale_after {
        return Err(Dropped::Stale);
    }
    let text = |label: &str| row.label(label).unwrap_or_default().to_owned();
    let instances = of.instance.map(|number| (number, text(PROFILE))).into_iter().collect();
    let index = row.label(INDEX).and_then(|index| index.parse().ok()).unwrap_or_default();
    Ok((of.gpu, Seen { node, stamp, at, instances, index, name: text(MODEL), pci_bus_id: text(PCI) }))
}

/// When the sample behind a row of `timestamp()` was taken: by Prometheus's clock in Unix milliseconds, and by ours. Its age is a matter of
/// Prometheus's clock alone, so that a clock that is off by minutes makes nothing old or young.
pub(super) fn sampled(row: &Row, asked: Timestamp) -> Result<(i64, Timestamp), Dropped> {
    let (evaluated, stamp) = (row.value.0, row.number());
    let age = evaluated - stamp;
    // A float holds milliseconds of any year that a clock will show. A second is what rounding and two threads may differ by.
    if age < -1.0 {
        return Err(Dropped::Future);
    }
    if !(stamp > 0.0 && age < 1e9) {
        return Err(Dropped::Absurd);
    }
    #[expect(clippy::cast_possible_truncation, reason = "of the size of a Unix time")]
    let (stamp, age) = ((stamp * 1000.0).round() as i64, (age.max(0.0) * 1000.0).round() as i64);
    let at = asked.checked_sub(SignedDuration::from_millis(age)).map_err(|_| Dropped::Absurd)?;
    Ok((stamp, at))
}
