//! What Karpenter's `NodeClasses` tell.

use std::collections::BTreeMap;

use serde_json::Value;
use stoker_core::base::ids::{ZoneId, ZoneName};

/// What an `EC2NodeClass` says of its subnets: the zones' names in this account.
pub fn zone_names(class: &Value) -> BTreeMap<ZoneId, ZoneName> {
    let subnets = class.pointer("/status/subnets").and_then(Value::as_array);
    let named = |subnet: &Value| {
        let id = ZoneId::new(subnet.get("zoneID")?.as_str()?).ok()?;
        Some((id, ZoneName::new(subnet.get("zone")?.as_str()?).ok()?))
    };
    subnets.into_iter().flatten().filter_map(named).collect()
}
