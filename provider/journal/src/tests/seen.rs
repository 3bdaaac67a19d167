use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::seen::{Activity, Seen, SeenGpu};
use stoker_core::facts::reading::{Source, digest::Digest};
use stoker_core::facts::snapshot::Snapshot;

use crate::delta::Part;

/// A fleet of which every node has eight GPUs, all quiet.
fn fleet(nodes: u32) -> Snapshot {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let node = |n: u32| {
        let gpu = |g: u32| {
            let uuid = format!("GPU-{n:08x}-0000-4000-8000-{g:012x}").try_into().unwrap();
            let activity = Activity::Quiet { since: at };
            let name = "NVIDIA H100 80GB HBM3".to_owned();
            (uuid, SeenGpu { name, activity, instances: BTreeMap::new(), ailments: [].into() })
        };
        let seen = Digest::new(Source::Probe, at).seen().clone();
        let seen = Seen { gpus: (0..8).map(gpu).collect(), ..seen };
        (NodeName::new(format!("ip-{n}")).unwrap(), Arc::new(seen))
    };
    Snapshot { seen: (0..nodes).map(node).collect(), ..Snapshot::default() }
}

fn stored(delta: &<Snapshot as Part>::Delta) -> String {
    serde_json::to_string(delta).unwrap()
}

#[test]
fn of_what_was_seen_only_what_changed_is_written() {
    let before = fleet(5_000);
    let mut after = before.clone();
    let name = NodeName::new("ip-7").unwrap();
    let mut changed = Seen::clone(&after.seen[&name]);
    changed.gpus.values_mut().next().unwrap().activity = Activity::Active { since: Timestamp::UNIX_EPOCH };
    after.seen.insert(name, Arc::new(changed));
    let (base, change) = (stored(&before.whole()), stored(&after.since(&before).unwrap()));
    // 1.1 KB a node.
    assert!(base.len() < 5_000 * 1_500, "{} bytes", base.len());
    assert!(change.len() < 1_700, "{} bytes", change.len());
    let rebuilt = Snapshot::apply(None, serde_json::from_str(&base).unwrap());
    assert_eq!(Snapshot::apply(Some(rebuilt), serde_json::from_str(&change).unwrap()), after);
    assert!(after.since(&after.clone()).is_none());
}
