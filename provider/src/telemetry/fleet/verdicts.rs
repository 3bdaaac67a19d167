//! Gauges of what is concluded of nodes.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use stoker_core::ids::PoolName;
use stoker_core::units::UsdPerHour;
use stoker_core::usage::group_of;
use stoker_core::verdict::Verdict;

use super::Fleet;
use crate::telemetry::published::{dollars, gauges};

impl Fleet {
    /// Writes nodes by verdict, and what held ones cost. Every pool has a row for each verdict, at nought where no node has it; without a
    /// Kubernetes feed nothing is concluded, and there is none.
    pub(super) fn encode_verdicts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.cluster.is_none() {
            return Ok(());
        }
        let pools = || self.menu.policy.pools.iter().map(|pool| &pool.name);
        let every = pools().flat_map(|pool| Verdict::ALL.map(|verdict| ((pool, verdict), 0)));
        let mut nodes: BTreeMap<(&PoolName, Verdict), i64> = every.collect();
        let mut held: BTreeMap<&PoolName, UsdPerHour> = pools().map(|pool| (pool, UsdPerHour::ZERO)).collect();
        for record in self.memory.records.values() {
            let (Some(judged), Some(group)) = (&record.judged, group_of(record, &self.memory, &self.menu)) else { continue };
            *nodes.entry((&group.pool, judged.verdict)).or_default() += 1;
            if let (Verdict::Held, Some(purchase)) = (judged.verdict, record.purchase()) {
                let cost = held.entry(&group.pool).or_default();
                *cost = cost.plus(purchase.price);
            }
        }
        let of = |((pool, verdict), nodes): ((&PoolName, Verdict), i64)| {
            ([("pool", pool.to_string()), ("verdict", verdict.as_str().to_owned())], nodes)
        };
        let help = "Nodes by what is concluded of them; one of which nothing can tell is not among them";
        gauges(encoder, "verdict", help, Some(&Unit::Other("nodes".to_owned())), nodes.into_iter().map(of))?;
        let held = held.into_iter().map(|(pool, cost)| ([("pool", pool.to_string())], dollars(cost)));
        let help = "What nodes cost at cash prices that pods hold and do nothing with, in US dollars an hour";
        gauges(encoder, "held", help, Some(&Unit::Other("usd_per_hour".to_owned())), held)
    }
}
