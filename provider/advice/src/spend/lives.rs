//! Lives of nodes: how long they took to come, how they ended, and how long a reclaimed one was missed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{PoolName, RecordId};
use stoker_core::market::offer::CapacityType;

/// How a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Nobody needed it, or Stoker replaced it.
    Released,
    /// The cloud took it back.
    Reclaimed,
    /// It did not join the cluster.
    Failed,
    /// It is gone, and nobody knows why.
    Vanished,
}

impl End {
    /// Every end.
    pub const ALL: [Self; 4] = [Self::Released, Self::Reclaimed, Self::Failed, Self::Vanished];

    /// The word used in the journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Reclaimed => "reclaimed",
            Self::Failed => "failed",
            Self::Vanished => "vanished",
        }
    }

    /// The end of that [word](Self::as_str).
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// A node's life. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Its record.
    pub record: RecordId,
    /// Its pool.
    pub pool: PoolName,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// When it was ordered.
    pub ordered: i64,
    /// When it was first Ready.
    pub ready: Option<i64>,
    /// When the cloud announced that it takes it back, or took it.
    pub taken: Option<i64>,
    /// How it ended, and when; `None` while it is there.
    pub end: Option<(End, i64)>,
}

/// Times of some nodes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LifeTimes {
    /// So many of them.
    pub nodes: usize,
    /// Half took at most so long.
    pub median_seconds: i64,
    /// 95 % took at most so long.
    pub p95_seconds: i64,
}

impl LifeTimes {
    /// Of these times; `None` of none.
    fn of(mut seconds: Vec<i64>) -> Option<Self> {
        seconds.sort_unstable();
        // The least that so many hundredths do not exceed.
        let at = |percent: usize| seconds.get((seconds.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { nodes: seconds.len(), median_seconds: at(50)?, p95_seconds: at(95)? })
    }
}

/// What became of the nodes of a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lives {
    /// Nodes that became Ready.
    pub started: usize,
    /// Nodes that were released.
    pub released: usize,
    /// Nodes that the cloud took back.
    pub reclaimed: usize,
    /// Nodes that did not join the cluster.
    pub failed: usize,
    /// Nodes that are gone for a reason that nobody knows.
    pub vanished: usize,
    /// From the order of a node until it was Ready; `None` where none was.
    pub order_to_ready: Option<LifeTimes>,
    /// From the notice of a reclaim, or the loss, until the next node of the pool that was ordered after it was Ready.
    pub recovery: Option<LifeTimes>,
    /// Reclaimed nodes in whose place none has come: none was needed, or none could be had.
    pub not_replaced: usize,
}

impl Lives {
    /// What became of nodes between two moments. `lives` may reach beyond.
    pub fn of(lives: &[Life], from: i64, until: i64) -> Self {
        let within = |at: &i64| (from..until).contains(at);
        let ended = |how: End| lives.iter().filter(|life| life.end.is_some_and(|(end, at)| end == how && within(&at))).count();
        let started: Vec<i64> = lives.iter().filter_map(|life| Some(life.ready.filter(within)? - life.ordered)).collect();
        let mut reclaimed: Vec<(i64, &PoolName)> = lives
            .iter()
            .filter(|life| life.end.is_some_and(|(end, at)| end == End::Reclaimed && within(&at)))
            .filter_map(|life| Some((life.taken.or(life.end.map(|(_, at)| at))?, &life.pool)))
            .collect();
        reclaimed.sort_unstable();
        let mut successors: BTreeMap<&PoolName, Vec<(i64, i64)>> = BTreeMap::new();
        for life in lives {
            if let Some(ready) = life.ready {
                successors.entry(&life.pool).or_default().push((ready, life.ordered));
            }
        }
        for of_pool in successors.values_mut() {
            of_pool.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut recovery = Vec::new();
        let mut not_replaced = 0;
        for (taken, pool) in reclaimed {
            let of_pool = successors.entry(pool).or_default();
            // Each node replaces one. What was ordered before this loss, was ordered before the later ones too.
            let next = std::iter::from_fn(|| of_pool.pop()).find(|(_, ordered)| *ordered >= taken);
            match next {
                Some((ready, _)) => recovery.push(ready - taken),
                None => not_replaced += 1,
            }
        }
        Self {
            started: started.len(),
            released: ended(End::Released),
            reclaimed: ended(End::Reclaimed),
            failed: ended(End::Failed),
            vanished: ended(End::Vanished),
            order_to_ready: LifeTimes::of(started),
            recovery: LifeTimes::of(recovery),
            not_replaced,
        }
    }
}
