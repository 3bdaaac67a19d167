//! When something was there: ranges of steps.

use std::collections::BTreeMap;
use std::ops::Range;

/// Steps in which something was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spells(Vec<Range<u32>>);

impl Spells {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a step; whether it is new. Steps mostly come in their order.
    pub fn add(&mut self, step: u32) -> bool {
        let at = match self.0.last() {
            Some(last) if step >= last.end => self.0.len() - usize::from(step == last.end),
            Some(_) => self.0.partition_point(|spell| spell.end < step),
            None => 0,
        };
        let next = step.saturating_add(1);
        match self.0.get_mut(at) {
            Some(spell) if spell.contains(&step) => return false,
            Some(spell) if spell.end == step => {
                spell.end = next;
                let follows = self.0.get(at + 1).filter(|spell| spell.start == next).map(|spell| spell.end);
                if let (Some(end), Some(spell)) = (follows, self.0.get_mut(at)) {
                    spell.end = end;
                    self.0.remove(at + 1);
                }
            }
            Some(spell) if spell.start == next => spell.start = step,
            _ => self.0.insert(at, step..next),
        }
        true
    }

    /// How many steps there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|spell| u64::from(spell.end - spell.start)).sum()
    }

    /// How many there are before a step.
    pub fn before(&self, step: u32) -> u64 {
        self.0.iter().map(|spell| u64::from(spell.end.min(step).saturating_sub(spell.start))).sum()
    }

    /// Whether a step is among them.
    pub fn has(&self, step: u32) -> bool {
        let at = self.0.partition_point(|spell| spell.end <= step);
        self.0.get(at).is_some_and(|spell| spell.contains(&step))
    }

    /// How many there are that others have too.
    pub fn shared(&self, other: &Self) -> u64 {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut shared = 0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            shared += u64::from(a.end.min(b.end).saturating_sub(a.start.max(b.start)));
            if a.end <= b.end {
                mine.next();
            } else {
                theirs.next();
            }
        }
        shared
    }

    /// The first.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|spell| spell.start)
    }

    /// The last.
    pub fn last(&self) -> Option<u32> {
        self.0.last().and_then(|spell| spell.end.checked_sub(1))
    }

    /// How many ranges without a break there are.
    pub fn ranges(&self) -> usize {
        self.0.len()
    }
}

/// The most that are there at once.
pub(super) fn most<'a>(all: impl Iterator<Item = &'a Spells>) -> u32 {
    let mut changes: BTreeMap<u32, i64> = BTreeMap::new();
    for spell in all.flat_map(|spells| &spells.0) {
        *changes.entry(spell.start).or_default() += 1;
        *changes.entry(spell.end).or_default() -= 1;
    }
    let mut now = 0;
    let counts = changes.values().map(|change| {
        now += change;
        now
    });
    u32::try_from(counts.max().unwrap_or(0)).unwrap_or(u32::MAX)
}
