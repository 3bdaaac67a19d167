//! Feasibility of a valid policy: floors that its own limits block, quotas that others use up,
//! commitments that have ended.
//!
//! Each is allowed, because prices, quotas and time change. Each is reported.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{Cloud, PoolName};
use crate::base::kinds::QuotaUnit;
use crate::catalogue::Catalogue;
use crate::catalogue::claims::in_region;
use crate::catalogue::group::Group;
use crate::choose::allocate::allocate;
use crate::choose::candidate::{Barred, Candidate, OfferVerdict};
use crate::choose::explanation::Explanation;
use crate::choose::rank::Scales;
use crate::choose::what_if::what_if;
use crate::limits::usage::Usage;
use crate::market::interruption::{notice, usable};
use crate::market::offer::{CapacityType, Offer};
use crate::market::price::Entry;
use crate::policy::rules::spot::Saving;
use crate::policy::{Path, Policy, Quota};
use crate::state::memory::Memory;

#[cfg(test)]
mod tests;

/// What a policy asks for and cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The pool's own floor does not fit under its limits, commitments counted.
    #[error("pool {pool}: only {found} of {field} {min} can be bought{}: lower it, or raise the limit that prevents it", because(.limits))]
    Floor {
        /// The pool.
        pool: PoolName,
        /// The field that asks for it.
        field: &'static str,
        /// Its floor.
        min: u32,
        /// How many of it can be bought.
        found: u32,
        /// What the next node lacks.
        limits: Vec<String>,
    },
    /// The floor fits by itself, and not beside those of the pools before it.
    #[error(
        "pool {pool}: only {found} of {field} {min} can be bought after the floors of the pools before it: quotas or \
         limits.maxUsdPerHour are too small for all floors; lower a floor, or raise the shared limit"
    )]
    FloorBesideOthers {
        /// The pool.
        pool: PoolName,
        /// The field that asks for it.
        field: &'static str,
        /// Its floor.
        min: u32,
        /// How many of it can be bought.
        found: u32,
    },
    /// Not one node of the pool can be bought.
    #[error("pool {pool}: no node can ever be bought{}: change what prevents it, or remove the pool", because(.limits))]
    NeverBuys {
        /// The pool.
        pool: PoolName,
        /// What the first node lacks.
        limits: Vec<String>,
    },
    /// Other limits than budgets stop the pool before its `maxNodes`.
    #[error("pool {pool}: only {found} of limits.maxNodes {max} can be bought{}: lower it, or raise the limit that prevents it", because(.limits))]
    MaxNodes {
        /// The pool.
        pool: PoolName,
        /// Its limit.
        max: u32,
        /// How many of it can be bought.
        found: u32,
        /// What the next node lacks.
        limits: Vec<String>,
    },
    /// Others use more of a quota than there is, so nothing is bought under it.
    #[error(
        "quota {name}{region}: used {used} is above its limit of {limit} {unit}, so nothing is bought under it: write what the cloud shows for both"
    )]
    QuotaOverdrawn {
        /// Its name.
        name: String,
        /// ` us-east-1`; empty where it counts all regions.
        region: String,
        /// Units that others use.
        used: u32,
        /// The limit.
        limit: u32,
        /// The unit.
        unit: QuotaUnit,
    },
    /// A save that a cloud's notice of a reclaim leaves no time for.
    #[error(
        "pool {pool}: capacity.spot.checkpointSave, {} s, is above the {} s that a reclaim on {cloud} leaves, so each is \
         assumed to lose all work since the last checkpoint, up to {} min: save faster, write checkpoints more often, or \
         remove {cloud} from where.clouds",
        save.as_secs(), left.as_secs(), every.as_secs() / 60
    )]
    SaveTooLong {
        /// The pool.
        pool: PoolName,
        /// How long a save takes.
        save: SignedDuration,
        /// The cloud.
        cloud: Cloud,
        /// What its notice leaves.
        left: SignedDuration,
        /// Time between two checkpoints.
        every: SignedDuration,
    },
    /// A commitment ended.
    #[error("commitment {name} ended at {until} and no longer counts: remove it, or write when its successor ends")]
    Ended {
        /// Its name.
        name: String,
        /// When.
        until: Timestamp,
    },
}

impl Warning {
    /// The field of the policy that it is about.
    pub fn place(&self, policy: &Policy) -> Option<Path> {
        let row = |list: &str, at: Option<usize>| Some(Path::root().key(list).index(at?));
        let of_pool = |name: &PoolName| row("pools", policy.pools.iter().position(|pool| pool.name == *name));
        match self {
            Self::Floor { pool, field, .. } | Self::FloorBesideOthers { pool, field, .. } => {
                Some(field.split('.').fold(of_pool(pool)?, |path, key| path.key(key)))
            }
            Self::NeverBuys { pool, .. } => of_pool(pool),
            Self::MaxNodes { pool, .. } => Some(of_pool(pool)?.key("limits").key("maxNodes")),
            Self::SaveTooLong { pool, .. } => Some(of_pool(pool)?.key("capacity").key("spot").key("checkpointSave")),
            Self::QuotaOverdrawn { name, region, .. } => {
                let same = |quota: &Quota| quota.name == *name && in_region(quota.region.as_ref()) == *region;
                Some(row("quotas", policy.quotas.iter().position(same))?.key("used"))
            }
            Self::Ended { name, .. } => row("commitments", policy.commitments.iter().position(|of| of.name == *name)),
        }
    }
}

/// Everything that the catalogue's policy asks for and cannot have at `wall`, with nothing bought yet and every market open.
pub fn warnings(catalogue: &Catalogue, wall: Wall) -> Vec<Warning> {
    let mut told = floors(catalogue, wall);
    let reach = out_of_reach(catalogue, wall, &told);
    told.extend(reach);
    told.extend(overdrawn(&catalogue.policy));
    told.extend(long_saves(catalogue));
    let ended = catalogue.policy.commitments.iter().filter_map(|commitment| {
        let until = commitment.until.filter(|until| wall.shows(*until))?;
        Some(Warning::Ended { name: commitment.name.clone(), until })
    });
    told.extend(ended);
    told
}

/// A memory of no node, neither Stoker's nor anybody else's.
fn nothing_bought() -> Memory {
    Memory { foreign: Some(Arc::default()), ..Memory::default() }
}

/// Pools that can buy nothing, and those that cannot come to their `maxNodes` whatever may be spent. One whose floor is out of reach is
/// told of as that.
fn out_of_reach(catalogue: &Catalogue, wall: Wall, floors: &[Warning]) -> Vec<Warning> {
    let short = |name: &PoolName| floors.iter().any(|floor| matches!(floor, Warning::Floor { pool, .. } if pool == name));
    let (memory, times) = (nothing_bought(), Times::at(wall.0));
    let off_hours = Usage::count(&memory, catalogue, wall).off_hours;
    let mut unbudgeted = Policy::clone(&catalogue.policy);
    (unbudgeted.max_usd_per_hour, unbudgeted.month) = (None, None);
    unbudgeted.pools.iter_mut().for_each(|pool| (pool.limits.max_usd_per_hour, pool.limits.month) = (None, None));
    let unbudgeted = catalogue.under(Arc::new(unbudgeted));
    // What a month has left is less at its end, and all again in the next.
    let mut of_any_month = Policy::clone(&catalogue.policy);
    of_any_month.month = None;
    of_any_month.pools.iter_mut().for_each(|pool| pool.limits.month = None);
    let of_any_month = catalogue.under(Arc::new(of_any_month));
    let mut told = Vec::new();
    for pool in &catalogue.policy.pools {
        let (name, max) = (&pool.name, pool.limits.max_nodes);
        // A pool without a place is told of as such, and one in its off-hours may buy later.
        if catalogue.pool_groups(name).next().is_none() || off_hours.contains_key(name) || max == 0 || short(name) {
            continue;
        }
        let one = what_if(&of_any_month, &memory, name, None, 1, times);
        if one.found == 0 {
            told.push(Warning::NeverBuys { pool: name.clone(), limits: in_the_way(&one) });
            continue;
        }
        let all = what_if(&unbudgeted, &memory, name, None, max, times);
        if all.found < max {
            told.push(Warning::MaxNodes { pool: name.clone(), max, found: all.found, limits: in_the_way(&all) });
        }
    }
    told
}

fn overdrawn(policy: &Policy) -> impl Iterator<Item = Warning> {
    policy.quotas.iter().filter(|quota| quota.used > quota.limit).map(|quota| Warning::QuotaOverdrawn {
        name: quota.name.clone(),
        region: in_region(quota.region.as_ref()),
        used: quota.used,
        limit: quota.limit,
        unit: quota.unit,
    })
}

/// Saves that clouds of their pool leave no time for.
fn long_saves(catalogue: &Catalogue) -> Vec<Warning> {
    let mut told = Vec::new();
    for (pool, rules) in catalogue.policy.pools.iter().filter_map(|pool| Some((pool, pool.spot.as_ref()?))) {
        let (Some(save), Saving::Checkpoints { every, .. }) = (rules.save, rules.saving) else { continue };
        let spot = |offer: &Offer| {
            offer.market.capacity_type == CapacityType::Spot && offer.entry.as_ref().is_some_and(Entry::is_sold)
        };
        let sells = |cloud: &&Cloud| {
            catalogue.pool_groups(&pool.name).any(|group| group.place.cloud == **cloud && group.offers.iter().any(spot))
        };
        for cloud in pool.clouds.iter().filter(sells) {
            let left = usable(notice(cloud));
            if save > left {
                told.push(Warning::SaveTooLong { pool: pool.name.clone(), save, cloud: cloud.clone(), left, every });
            }
        }
    }
    told
}

/// Floors are bought as any nodes are, pool after pool.
fn floors(catalogue: &Catalogue, wall: Wall) -> Vec<Warning> {
    let memory = nothing_bought();
    let times = Times::at(wall.0);
    let mut usage = Usage::count(&memory, catalogue, wall);
    let mut told = Vec::new();
    for pool in &catalogue.policy.pools {
        // What a schedule asks for at times is told when it is due; what stands forever is told now.
        let warm = pool.warm_floor.as_ref().map_or(0, |floor| floor.nodes);
        let (name, min) = (&pool.name, pool.limits.min_nodes.max(warm));
        let field = if warm > pool.limits.min_nodes { "warmFloor.nodes" } else { "limits.minNodes" };
        let groups: Vec<&Group> = catalogue.pool_groups(name).map(AsRef::as_ref).collect();
        // A pool without a place gets no node of any kind, which is told of it as such. Of one in its off-hours this is not the time to tell.
        if min == 0 || groups.is_empty() || usage.off_hours.contains_key(name) {
            continue;
        }
        let alone = what_if(catalogue, &memory, name, None, min, times);
        let allocation = allocate(&Scales { catalogue, memory: &memory, usage: &usage, fresh: &|_| true, times }, &groups, min);
        let found = allocation.found();
        usage = allocation.usage;
        if alone.found < min {
            told.push(Warning::Floor { pool: name.clone(), field, min, found: alone.found, limits: in_the_way(&alone) });
        } else if found < min {
            told.push(Warning::FloorBesideOthers { pool: name.clone(), field, min, found });
        }
    }
    told
}

/// What keeps the next node away: of the chosen the limits that ended the choice, else what bars the cheapest.
fn in_the_way(made: &Explanation) -> Vec<String> {
    let named = |candidate: &Candidate| {
        let first = match &candidate.verdict {
            OfferVerdict::Barred(why @ Barred::Bound(_)) => Some(why.to_string()),
            OfferVerdict::Chosen { .. } => candidate.ended_by.as_ref().map(ToString::to_string),
            _ => None,
        };
        let also = candidate.also.iter().map(ToString::to_string);
        first.map(|first| std::iter::once(first).chain(also).collect::<Vec<_>>())
    };
    let price = |candidate: &&Candidate| candidate.price.as_ref().map_or(i64::MAX, |price| price.ranked().0);
    let mut chosen = made.candidates.iter().filter(|candidate| matches!(candidate.verdict, OfferVerdict::Chosen { .. }));
    let bound = chosen.find_map(named);
    let barred = || made.candidates.iter().filter(|candidate| named(candidate).is_some()).min_by_key(price).and_then(named);
    let any = || made.candidates.iter().min_by_key(price).map(|candidate| vec![candidate.verdict.to_string()]);
    bound.or_else(barred).or_else(any).unwrap_or_default()
}

fn because(limits: &[String]) -> String {
    let mut text = String::new();
    for (at, limit) in limits.iter().enumerate() {
        let _ = write!(text, "{}{limit}", if at == 0 { " (" } else { "; " });
    }
    if !text.is_empty() {
        text.push(')');
    }
    text
}
