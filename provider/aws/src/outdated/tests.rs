use super::{digest, tag};
use crate::testing::class;
use stoker_core::base::ids::NodeClassName;

#[test]
fn a_digest_stays_the_same_across_releases() {
    // Nodes of an older release bear it: another digest for the same class would replace them all.
    assert_eq!(tag(&NodeClassName::new("gpu").unwrap(), &class("")), "gpu/0a4b5eea3b56");
}

#[test]
fn whatever_changes_nodes_changes_the_digest_and_nothing_else_does() {
    let plain = digest(&class(""));
    let fields = [
        "    disk: { sizeGiB: 300 }",
        "    disk: { throughput: 500 }",
        "    disk: { iops: 6000 }",
        "    disk: { kmsKey: \"arn:aws:kms:us-east-1:111111111111:key/1234abcd-12ab-34cd-56ef-1234567890ab\" }",
        "    localDisks: unused",
        "    efa: all",
        "    placementGroup: pg",
        "    nodeNames: instance-id",
    ];
    let mut digests: Vec<String> = fields.iter().map(|field| digest(&class(field))).collect();
    digests.push(plain.clone());
    let all = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all, "each differs from each");
    for same in ["    tags: { team: ml }", "    image: { id: ami-0123456789abcdef0 }"] {
        assert_eq!(digest(&class(same)), plain, "{same}");
    }
}
