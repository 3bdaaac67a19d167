//! What a launch says of its node.

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, NodeGroupId, PoolName, Region, ZoneId, ZoneName};
use stoker_core::base::units::Milli;
use stoker_core::catalogue::{Catalogue, template};
use stoker_core::market::offer::{Arch, CapacityType, Market, Network, Place};
use stoker_core::market::sharing::Slices;

use super::*;

fn place() -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    }
}

fn request() -> LaunchRequest {
    LaunchRequest {
        key: LaunchKey::new("test/g/0c4de2a1/1/1").unwrap(),
        group: NodeGroupId::new("g").unwrap(),
        zone_name: ZoneName::from(&place().zone),
        market: Market { place: place(), capacity_type: CapacityType::OnDemand },
        reservation: None,
    }
}

fn group(network: Option<Network>) -> Group {
    let spec = InstanceSpec {
        cloud: place().cloud,
        instance_type: place().instance_type,
        gpu_model: GpuModel::new("L4").unwrap(),
        gpus: Milli(1000),
        gpu_memory: MiB::from_gib(24),
        vcpus: Some(4),
        memory: Some(MiB::from_gib(16)),
        arch: Arch::Amd64,
        network,
        local_disk: None,
    };
    let (capacity, allocatable) = template::resources(&spec).unwrap();
    let (labels, taints, slices) = (BTreeMap::new(), Vec::new(), Slices::default());
    Group {
        id: NodeGroupId::new("g").unwrap(),
        pool: PoolName::new("p").unwrap(),
        place: place(),
        zone_name: ZoneName::from(&place().zone),
        spec: Arc::new(spec),
        supplier: SupplierName::new("test").unwrap(),
        node_class: None,
        template: NodeTemplate { labels, taints, capacity, allocatable, slices },
        slices: None,
        work: None,
        transfer: None,
        offers: Vec::new(),
    }
}

/// A kubelet with these settings leaves to pods what the template says.
#[test]
fn a_launch_says_what_makes_its_node_equal_to_the_template() {
    let group = group(Some(Network { pods: 58, cards: 1, efa_interfaces: 0 }));
    let launch = Launch::of(request(), &group, Timestamp::UNIX_EPOCH);
    let NodeTemplate { capacity, allocatable, .. } = &group.template;
    assert_eq!((launch.pods, launch.disk), (58, MiB::from_gib(100)));
    assert_eq!(launch.kept, Reserves { milli_cpu: 80, memory: MiB(255 + 11 * 58) });
    assert_eq!(capacity.milli_cpu - launch.kept.milli_cpu, allocatable.milli_cpu);
    // The kubelet's eviction threshold, 100 MiB, comes on top.
    assert_eq!(capacity.memory.0 - launch.kept.memory.0 - 100, allocatable.memory.0);
    assert_eq!(launch.spec.as_deref(), Some(&*group.spec));
}

#[test]
fn a_node_of_which_nothing_was_promised_gets_the_kubelets_defaults() {
    let launch = Launch::from(request());
    assert_eq!((launch.pods, launch.kept, launch.disk), (110, Reserves::default(), MiB::from_gib(100)));
    assert_eq!(launch.spec, None);
    assert_eq!(Launch::of(request(), &group(None), Timestamp::UNIX_EPOCH).pods, 110);
}

#[test]
fn a_pool_whose_node_class_its_supplier_does_not_have_is_named_with_those_it_has() {
    let pool = |class: &str| {
        format!(
            "- name: {class}\n  workload: training\n  gpu: {{ models: [L4] }}\n  where: {{ clouds: [aws], regions: [us-east-1] }}\n  \
             limits: {{ maxNodes: 1 }}\n  nodeClass: {class}\n"
        )
    };
    let supplier = "{ name: aws, kind: aws, config: /etc/stoker/aws/aws.yaml }";
    let text = format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: prod\nsuppliers: [{supplier}]\npools:\n{}{}",
        pool("gpu"),
        pool("gqu")
    );
    let book = stoker_pricing::embedded().unwrap();
    let policy = crate::policy_file::parse("policy.yaml", &text, Some(&book)).unwrap();
    let (aws, classes) = (SupplierName::new("aws").unwrap(), [NodeClassName::new("gpu").unwrap()].into());
    let facts = MarketFacts { clouds: [place().cloud].into(), node_classes: Some(classes), ..MarketFacts::default() };
    let catalogue = Catalogue::derive(&Arc::new(policy), &book, &BTreeMap::from([(aws.clone(), facts)]));
    let said: Vec<String> = without_nodes(&catalogue, &aws).into_iter().collect();
    assert_eq!(said, ["pool gqu gets no node: it has no node class gqu; it has gpu"]);
}
