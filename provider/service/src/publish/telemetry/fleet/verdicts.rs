//! Gauges of what is concluded of nodes.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::usage::group_of;
use stoker_core::state::node_verdict::Verdict;

use super::Fleet;
use crate::publish::telemetry::published::{dollars, gauges};

impl Fleet {
    /// Writes nodes by verdict, and what held ones cost. Every pool has a row for each verdict, at nought where no node has it; without a
    /// Kubernetes feed nothing is concluded, and there is none.
    pub(super) fn encode_verdicts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.cluster.is_none() {
            return Ok(());
        }
        let pools = || self.catalogue.policy.pools.iter().map(|pool| &pool.name);
        let every = pools().flat_map(|pool| Verdict::ALL.map(|verdict| ((pool, verdict), 0)));
        let mut nodes: BTreeMap<(&PoolName, Verdict), i64> = every.collect();
        let mut lost: BTreeMap<&PoolName, UsdPerHour> = pools().map(|pool| (pool, UsdPerHour::ZERO)).collect();
        for record in self.memory.records.values() {
            let (Some(judged), Some(group)) = (&record.judged, group_of(record, &self.memory, &self.catalogue)) else {
                continue;
            };
            *nodes.entry((&group.pool, judged.verdict)).or_default() += 1;
            if let (Verdict::Held, Some(purchase)) = (judged.verdict, record.purchase()) {
                let cost = lost.entry(&group.pool).or_default();
                *cost = cost.plus(purchase.price);
            }
        }
        let of = |((pool, verdict), nodes): ((&PoolName, Verdict), i64)| {
            ([("pool", pool.to_string()), ("verdict", verdict.as_str().to_owned())], nodes)
        };
        let help = "Nodes by verdict; nodes without a verdict are not counted";
        gauges(encoder, "verdict", help, Some(&Unit::Other("nodes".to_owned())), nodes.into_iter().map(of))?;
        let lost = lost.into_iter().map(|(pool, cost)| ([("pool", pool.to_string())], dollars(cost)));
        let help = "Cost of nodes with verdict held (pods occupy them and do nothing), in US dollars per hour, before \
                    commitments";
        gauges(encoder, "held", help, Some(&Unit::Other("usd_per_hour".to_owned())), lost)
    }
}
