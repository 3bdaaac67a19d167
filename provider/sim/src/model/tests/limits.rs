//! The limits of the whole cluster.

use super::*;

#[test]
fn the_cluster_takes_no_more_nodes_than_it_may_have() {
    let settings = Settings { max_nodes_total: 2, ..Settings::new(Generation::V1_36) };
    let mut rig = Rig::new(settings, &["a"]);
    rig.want(&["1", "2", "3"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 2)]);
    rig.boot(true);
    let report = rig.next();
    assert_eq!(report.scale_up, ScaleUp::MaxNodesTotal);
}

#[test]
fn gpus_are_limited_by_the_value_of_their_label() {
    let settings = Settings { max_gpus: [("L4".to_owned(), 2)].into(), ..Settings::new(Generation::V1_36) };
    let mut rig = Rig::new(settings, &["a"]);
    rig.want(&["1", "2", "3"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 2)]);
    let report = rig.next();
    assert_eq!(report.skipped["a"], Skip::Limit);
    rig.supplier().gpu_label.clear();
    rig.ca.restart();
    rig.supplier().group("a").closed = false;
    assert_eq!(asked(&rig.next()), [("a", 3)], "without a label there is no limit");
}

#[test]
fn cores_and_memory_are_limited() {
    for settings in [
        Settings { max_cores: Some(16), ..Settings::new(Generation::V1_36) },
        Settings { max_memory: Some(MiB::from_gib(64)), ..Settings::new(Generation::V1_36) },
    ] {
        let mut rig = Rig::new(settings, &["a"]);
        rig.want(&["1", "2", "3"]);
        assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 2)]);
    }
}
