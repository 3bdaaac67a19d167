use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, Region, SupplierName, ZoneId};
use crate::base::units::{MiB, Milli};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::supply::MarketFacts;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::policy::{Policy, RawPolicy};

/// A pool with three shapes of one GPU model: 1 GPU at $0.80, 4 GPUs at $4.60, 8 GPUs at $16.00.
struct Fleet {
    catalogue: Catalogue,
}

impl Fleet {
    fn new(isolation: &serde_json::Value) -> Self {
        Self::sharing(isolation, &json!(null))
    }

    fn sharing(isolation: &serde_json::Value, sharing: &serde_json::Value) -> Self {
        let raw: RawPolicy = serde_json::from_value(json!({
            "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
            "pools": [{
                "name": "pool", "workload": "inference",
                "gpu": { "models": ["L4"] },
                "where": { "clouds": ["aws"], "regions": ["r"] },
                "limits": { "maxNodes": 10 },
                "isolation": isolation, "sharing": sharing,
            }],
        }))
        .unwrap();
        let policy = Arc::new(Policy::try_from_raw(&raw).unwrap());
        let mut book = PriceBook::new();
        for (name, gpus, vcpus, gib, price) in
            [("g.1x", 1, 4, 16, 800_000), ("g.4x", 4, 48, 192, 4_600_000), ("g.8x", 8, 192, 768, 16_000_000)]
        {
            let cloud = Cloud::new("aws").unwrap();
            let instance_type = InstanceType::new(name).unwrap();
            book.insert_spec(InstanceSpec {
                cloud: cloud.clone(),
                instance_type: instance_type.clone(),
                gpu_model: GpuModel::new("L4").unwrap(),
                gpus: Milli(gpus * 1000),
                gpu_memory: MiB::from_gib(24),
                vcpus: Some(vcpus),
                memory: Some(MiB::from_gib(gib)),
                arch: Arch::Amd64,
                network: None,
                local_disk: None,
            });
            let place = Place { cloud, region: Region::new("r").unwrap(), zone: ZoneId::new("z").unwrap(), instance_type };
            let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::Operator, as_of: None, source: "test".into() };
            book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
        }
        let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
        let suppliers = BTreeMap::from([(SupplierName::new("test").unwrap(), facts)]);
        Self { catalogue: Catalogue::derive(&policy, &book, &suppliers) }
    }

    /// What a pod may use while the named types can be had.
    fn admitted(&self, pod: &PodNeeds, open: &[&str]) -> Vec<(String, Admitted)> {
        let shapes: Vec<Shape<'_>> = self.catalogue.groups.values().map(|group| shape(group, open)).collect();
        let pool = &self.catalogue.policy.pools[0];
        admitted(pod, &shapes, pool.isolation.unwrap(), pool.waiting)
            .into_iter()
            .map(|(name, why)| (name.to_string(), why))
            .collect()
    }
}

fn shape<'a>(group: &'a Arc<Group>, open: &[&str]) -> Shape<'a> {
    let price = group.offers[0].quote(Wall(jiff::Timestamp::UNIX_EPOCH)).unwrap().price;
    Shape { group, price, open: open.contains(&group.place.instance_type.as_str()) }
}

fn pod(gpus: u32, cpus: u64, gib: u64, waited_minutes: i64) -> PodNeeds {
    PodNeeds {
        milli_cpu: cpus * 1000,
        memory_bytes: gib << 30,
        gpus,
        slices: Slices::default(),
        waited: SignedDuration::from_mins(waited_minutes),
    }
}

const ALL: [&str; 3] = ["g.1x", "g.4x", "g.8x"];

#[test]
fn a_small_pod_stays_off_dear_nodes_and_a_large_one_does_not() {
    let fleet = Fleet::new(&json!({ "maxCostRatio": 1.0 }));
    // One GPU: all of $0.80, a quarter of $4.60 = $1.15, an eighth of $16 = $2.00. Only the first is within 1.0 × $0.80.
    assert_eq!(fleet.admitted(&pod(1, 2, 8, 0), &ALL), [("g.1x".to_owned(), Admitted::InClass)]);
    // Four GPUs do not fit one; $4.60 is its own cheapest, and half of $16 = $8.00 is more expensive.
    assert_eq!(fleet.admitted(&pod(4, 8, 32, 0), &ALL), [("g.4x".to_owned(), Admitted::InClass)]);
    // With κ = 1.5 a quarter of $4.60 is within $1.20.
    let fleet = Fleet::new(&json!({ "maxCostRatio": 1.5 }));
    let names: Vec<String> = fleet.admitted(&pod(1, 2, 8, 0), &ALL).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["g.1x", "g.4x"]);
}

#[test]
fn the_largest_share_of_any_resource_counts() {
    // One GPU, but 40 of some 47 cores of the 4-GPU host: it needs the large host, and that is its own cheapest.
    let fleet = Fleet::new(&json!({ "maxCostRatio": 1.0 }));
    assert_eq!(fleet.admitted(&pod(1, 40, 8, 0), &ALL)[0].0, "g.4x");
    // A quarter of the GPUs, half of the memory: $2.30 of the 4-GPU host's $4.60, against $4.60 of its own cheapest, which it is.
    assert_eq!(fleet.admitted(&pod(1, 4, 90, 0), &ALL)[0].0, "g.4x");
}

#[test]
fn slices_count_as_what_a_node_has_of_them() {
    let turns = json!({ "timeSlicing": 4, "renameByDefault": true, "acknowledge": ["timeSlicedInference"] });
    let fleet = Fleet::sharing(&json!({ "maxCostRatio": 1.0 }), &turns);
    let asking = |name, number| PodNeeds { slices: [(name, number)].into_iter().collect(), ..pod(0, 1, 1, 0) };
    // Three turns fit one GPU at $0.80; three of 16 would be $0.86, three of 32 $1.50.
    assert_eq!(fleet.admitted(&asking("nvidia.com/gpu.shared", 3), &ALL), [("g.1x".to_owned(), Admitted::InClass)]);
    // Nine do not: $4.60 is their own cheapest, and nine of 32 are $4.50. Ten of 32 are $5.00.
    let both = ["g.4x", "g.8x"].map(|name| (name.to_owned(), Admitted::InClass));
    assert_eq!(fleet.admitted(&asking("nvidia.com/gpu.shared", 9), &ALL), both);
    assert_eq!(fleet.admitted(&asking("nvidia.com/gpu.shared", 10), &ALL), both[..1]);
    assert!(fleet.admitted(&asking("nvidia.com/mig-1g.10gb", 1), &ALL).is_empty());
    assert!(fleet.admitted(&pod(1, 1, 1, 0), &ALL).is_empty(), "no node of the pool has an nvidia.com/gpu");
}

#[test]
fn what_fits_nowhere_is_admitted_nowhere() {
    let fleet = Fleet::new(&json!({ "maxCostRatio": 1.0 }));
    assert!(fleet.admitted(&pod(9, 1, 1, 600), &ALL).is_empty());
}

#[test]
fn a_dear_shape_opens_when_waiting_has_cost_what_it_costs_more() {
    let fleet = Fleet::new(&json!({ "maxCostRatio": 1.0 }));
    // The class is sold out. A quarter of $4.60 is $0.35 an hour above $0.80; at $2 a GPU-hour that is waited off in 10.5 min.
    let open = ["g.4x", "g.8x"];
    assert_eq!(fleet.admitted(&pod(1, 2, 8, 10), &open), [("g.1x".to_owned(), Admitted::InClass)]);
    let extra = UsdPerHour(350_000);
    let both = [("g.1x".to_owned(), Admitted::InClass), ("g.4x".to_owned(), Admitted::ClassSoldOut { extra })];
    assert_eq!(fleet.admitted(&pod(1, 2, 8, 11), &open), both);
    // However long it waits: while its own class can be had, no expensive shape opens.
    assert_eq!(fleet.admitted(&pod(1, 2, 8, 600), &ALL).len(), 1);
}

#[test]
fn each_shape_of_an_isolated_pool_has_a_taint_and_an_id_of_its_own() {
    let (open, isolated) = (Fleet::new(&json!(null)).catalogue, Fleet::new(&json!({ "maxCostRatio": 1.0 })).catalogue);
    for group in isolated.groups.values() {
        let taint = shape_taint(&group.place.instance_type);
        assert!(group.template.taints.contains(&taint), "{:?}", group.template.taints);
        assert!(!open.groups.contains_key(&group.id), "the autoscaler keeps a group's first template for ever");
    }
}
