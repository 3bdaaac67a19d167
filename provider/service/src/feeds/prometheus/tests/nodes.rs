use super::super::labels::{Dropped, Nodes};
use super::*;

fn labels() -> Vec<String> {
    stoker_core::policy::Prometheus::default().node_labels
}

#[test]
fn a_node_is_found_by_any_of_its_labels() {
    let known = ["ip-10-0-1-2.ec2.internal", "gpu-a", "gpu-b", "twin.east", "twin.west"].map(node).to_vec();
    let nodes = Nodes::new(known);
    let of = |series: &[(&str, &str)]| nodes.of(&row(series, 0.0, &0), &labels());
    let found = |name: &str| Ok(node(name));
    assert_eq!(of(&[("Hostname", "gpu-a")]), found("gpu-a"));
    assert_eq!(of(&[("hostname", "gpu-a"), ("instance", "10.0.9.9:9400")]), found("gpu-a"));
    // Without NODE_NAME the exporter gives its pod's name; a scrape configuration may add the node's.
    assert_eq!(of(&[("Hostname", "dcgm-exporter-x7k2p"), ("node", "gpu-b")]), found("gpu-b"));
    assert_eq!(of(&[("instance", "gpu-b:9400")]), found("gpu-b"));
    // What the machine calls itself, where that means one node only.
    assert_eq!(of(&[("Hostname", "ip-10-0-1-2")]), found("ip-10-0-1-2.ec2.internal"));
    assert_eq!(of(&[("Hostname", "twin")]), Err(Dropped::UnknownNode));
    assert_eq!(of(&[("Hostname", "")]), Err(Dropped::UnknownNode));
    assert_eq!(of(&[("Hostname", "gpu-z"), ("instance", "10.0.9.9:9400")]), Err(Dropped::UnknownNode));
    // Two labels that name two nodes: neither is believed.
    assert_eq!(of(&[("Hostname", "gpu-a"), ("node", "gpu-b")]), Err(Dropped::Conflict));
}

#[test]
fn the_queries_are_promql_and_ask_for_the_whole_cluster_at_once() {
    use super::super::dcgm::{FIELDS, stamps, xid_counts};
    let mut rules = stoker_core::policy::Prometheus::default();
    rules.match_labels.insert("cluster".to_owned(), "prod \"east\"".to_owned());
    let queries = FIELDS.iter().map(|field| field.query(&rules)).chain([stamps(&rules), xid_counts(&rules)]);
    for query in queries {
        assert!(promql_parser::parser::parse(&query).is_ok(), "{query}");
        assert!(query.contains(r#"cluster="prod \"east\"""#), "{query}");
    }
    let usual = stoker_core::policy::Prometheus::default();
    assert_eq!(
        field(Level::Utilization).query(&usual),
        r#"max by (UUID, uuid, GPU_I_ID) (last_over_time({__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_GPU_UTIL_RATIO"}[90s]))"#
    );
    assert_eq!(
        field(Level::MemoryFree).query(&usual),
        "min by (UUID, uuid, GPU_I_ID) (last_over_time(DCGM_FI_DEV_FB_FREE[90s]))"
    );
    let by = "Hostname, hostname, node, instance, UUID, uuid, GPU_I_ID, GPU_I_PROFILE, gpu, modelName, pci_bus_id";
    let first =
        format!("max by ({by}) (timestamp(DCGM_FI_DEV_FB_USED)) or max by ({by}) (timestamp(DCGM_FI_DEV_GPU_UTIL)) or ");
    assert!(stamps(&usual).starts_with(&first), "{}", stamps(&usual));
}
