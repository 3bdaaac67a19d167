//! Gauges of floors.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use stoker_core::base::ids::PoolName;
use stoker_core::policy::rules::warm_floor::FloorStands;

use super::super::published::{dollars, gauges};
use super::Fleet;

impl Fleet {
    pub(super) fn encode_floors(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ready = self.ready();
        let pools = || self.catalogue.policy.pools.iter();
        let label = |pool: &PoolName| [("pool", pool.to_string())];
        let unit = Unit::Other("nodes".to_owned());
        let floors = pools().map(|pool| (label(&pool.name), i64::from(pool.limits.min_nodes)));
        gauges(encoder, "floor", "Nodes that a pool keeps whatever the demand", Some(&unit), floors)?;
        let missing = pools().map(|pool| {
            let there = ready.get(&pool.name).copied().unwrap_or(0);
            let warm = self.floors.iter().find(|floor| floor.pool == pool.name);
            let not_warm = warm.map_or(0, |floor| floor.wanted.saturating_sub(floor.warm));
            (label(&pool.name), i64::from(pool.limits.min_nodes.saturating_sub(there).max(not_warm)))
        });
        let help = "Nodes that a pool lacks: Ready nodes for its minNodes or warm nodes for its warm floor, whichever is \
                    more";
        gauges(encoder, "floor_missing", help, Some(&unit), missing)?;
        let of = |nodes: fn(&FloorStands) -> u32| {
            self.floors.iter().map(move |floor| ([("pool", floor.pool.to_string())], i64::from(nodes(floor))))
        };
        gauges(encoder, "warm_floor_wanted", "Warm nodes that a pool wants now", Some(&unit), of(|floor| floor.wanted))?;
        gauges(encoder, "warm_floor_warm", "Warm nodes of a pool that has a warm floor", Some(&unit), of(|floor| floor.warm))?;
        gauges(encoder, "warm_floor_coming", "Nodes that boot for a warm floor", Some(&unit), of(|floor| floor.coming))?;
        let rates = self.floors.iter().map(|floor| (label(&floor.pool), dollars(floor.usd_per_hour)));
        let per_hour = Unit::Other("usd_per_hour".to_owned());
        let help = "Cost of the warm nodes that a pool wants, in US dollars per hour, before commitments";
        gauges(encoder, "warm_floor", help, Some(&per_hour), rates)
    }
}
