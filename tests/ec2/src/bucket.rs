//! Throttling: token buckets by account, region and call.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::request::{Asked, Protocol};

/// Thousandths of a token: a rate a second is as many of these a millisecond.
const ONE: i64 = 1_000;

/// A bucket: how much it holds, and how much comes back a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    holds: i64,
    a_second: i64,
}

/// What is left in each bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buckets {
    left: BTreeMap<(String, String, String), (i64, Timestamp)>,
}

const fn size(holds: i64, a_second: i64) -> Size {
    Size { holds, a_second }
}

/// The buckets that a call draws from, each with what it takes of it.
fn sizes(asked: &Asked) -> Vec<(&'static str, Size, i64)> {
    let action = asked.action.as_str();
    let narrowed = ["MaxResults", "Filter.1.Name", "InstanceId.1", "GroupId.1", "SpotInstanceRequestId.1"];
    let is_bare = !narrowed.iter().any(|name| asked.get(name).is_some());
    match action {
        "RunInstances" => vec![("requests", size(5, 2), 1), ("machines", size(1_000, 2), 1)],
        "TerminateInstances" => {
            let machines = i64::try_from(asked.list("InstanceId").len()).unwrap_or(i64::MAX);
            vec![("requests", size(100, 5), 1), ("machines", size(1_000, 20), machines)]
        }
        "DescribeInstances" | "DescribeInstanceStatus" | "DescribeSecurityGroups" | "DescribeSpotInstanceRequests"
            if is_bare =>
        {
            vec![("bare", size(50, 10), 1)]
        }
        _ => vec![("requests", size(100, 20), 1)],
    }
}

impl Buckets {
    /// Takes what a call needs; `false` where too little is left.
    pub(crate) fn take(&mut self, asked: &Asked, now: Timestamp) -> bool {
        if asked.protocol != Protocol::Ec2 {
            return true;
        }
        let mut taken = Vec::new();
        for (name, size, needs) in sizes(asked) {
            let key = (asked.account.clone(), asked.region.clone(), format!("{} {name}", asked.action));
            let (left, since) = self.left.get(&key).copied().unwrap_or((size.holds * ONE, now));
            let passed = (now.as_millisecond() - since.as_millisecond()).max(0);
            let left = left.saturating_add(passed.saturating_mul(size.a_second)).min(size.holds * ONE);
            let after = left - needs.min(size.holds) * ONE;
            if after < 0 {
                return false;
            }
            taken.push((key, (after, now)));
        }
        self.left.extend(taken);
        true
    }
}
