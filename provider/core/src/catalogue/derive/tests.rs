use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{Cloud, GpuModel, InstanceType, NodeClassName, PoolName, Region, ZoneId};
use crate::base::units::{Milli, UsdPerHour, Work};
use crate::choose::candidate::OfferVerdict;
use crate::choose::parts::price_parts;
use crate::choose::what_if::what_if;
use crate::facts::supply::MachineFact;
use crate::market::offer::{Arch, GpuNames, GpuSpec, Network};
use crate::policy::RawPolicy;
use crate::policy::rules::supplier::{SupplierKind, SupplierRule};
use crate::state::memory::Memory;

/// Name, model, GiB of a GPU, GPUs in thousandths, price in micro-dollars.
const TYPES: [(&str, &str, u64, u32, i64); 7] = [
    ("g4dn.12xlarge", "T4", 16, 4_000, 3_912_000),
    ("g5.xlarge", "A10G", 24, 1_000, 1_006_000),
    ("g6.xlarge", "L4", 24, 1_000, 804_800),
    ("g6f.xlarge", "L4", 24, 250, 210_000),
    ("p4d.24xlarge", "A100", 40, 8_000, 21_957_600),
    ("p5.48xlarge", "H100", 80, 8_000, 55_040_000),
    ("x.8", "Mystery", 80, 8_000, 9_000_000),
];

/// Model, GiB, GB/s, FP16 gigaflops, capability, MIG instances, NVLink GB/s.
type Gpu = (&'static str, u64, u32, Option<u64>, &'static str, u32, u32);
const GPUS: [Gpu; 5] = [
    ("T4", 16, 320, Some(65_000), "7.5", 0, 0),
    ("A10G", 24, 600, Some(70_000), "8.6", 0, 0),
    ("L4", 24, 300, Some(121_000), "8.9", 0, 0),
    ("A100", 40, 1_555, Some(312_000), "8.0", 7, 600),
    ("H100", 80, 3_350, None, "9.0", 7, 900),
];

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn book() -> PriceBook {
    let mut book = PriceBook::new();
    for (model, gib, gb_s, fp16_gflops, capability, mig, nvlink) in GPUS {
        book.insert_gpu(GpuSpec {
            model: GpuModel::new(model).unwrap(),
            memory: MiB::from_gib(gib),
            bandwidth_gb_s: Some(gb_s),
            fp16_gflops,
            fp8_gflops: None,
            compute_capability: capability.parse().ok(),
            mig_max_instances: Some(mig),
            mig_profiles: Vec::new(),
            nvlink_gb_s: Some(nvlink),
            names: GpuNames::default(),
        });
    }
    for (name, model, gib, gpus, price) in TYPES {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("r").unwrap(),
            zone: ZoneId::new("z").unwrap(),
            instance_type: InstanceType::new(name).unwrap(),
        };
        book.insert_spec(InstanceSpec {
            cloud: place.cloud.clone(),
            instance_type: place.instance_type.clone(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(gpus),
            gpu_memory: MiB::from_gib(gib),
            vcpus: Some(4),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: None, source: "test".into() };
        book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
    }
    book
}

/// The policy of a pool of that tier with these GPUs, and these rows of prices. Best effort takes spot, too.
fn policy(tier: &str, gpu: &Value, prices: &Value) -> Arc<Policy> {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "defaults": {"unknownQuota": "allow"},
        "pools": [{
            "name": "p", "workload": "inference", "tier": tier, "gpu": gpu,
            "where": {"clouds": ["aws"], "regions": ["r"]}, "limits": {"maxNodes": 9},
        }],
        "prices": prices,
    }))
    .unwrap();
    Arc::new(Policy::try_from_raw(&raw).unwrap_or_else(|faults| panic!("{faults:?}")))
}

fn suppliers() -> BTreeMap<SupplierName, MarketFacts> {
    let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
    [(SupplierName::new("test").unwrap(), facts)].into()
}

/// The catalogue of a pool with all models and this said of its GPUs beside.
fn catalogue(more: &Value) -> Catalogue {
    let mut gpu = json!({"models": ["T4", "A10G", "L4", "A100", "H100", "Mystery"]});
    gpu.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Catalogue::derive(&policy("standard", &gpu, &json!([])), &book(), &suppliers())
}

/// What is left out, as `type: reason`.
fn left_out(more: &Value) -> Vec<String> {
    catalogue(more).left_out.iter().map(|left| format!("{}: {}", left.place.instance_type, left.why)).collect()
}

fn work_of(catalogue: &Catalogue, instance_type: &str) -> Option<Work> {
    catalogue.groups.values().find(|group| group.place.instance_type.as_str() == instance_type).unwrap().work
}

/// Who makes the nodes of the pool: each one's supplier and node class, and why others are left out.
fn makers(policy: &Policy, facts: &[(&str, MarketFacts)]) -> (BTreeSet<String>, BTreeSet<String>) {
    let facts = facts.iter().map(|(name, facts)| (SupplierName::new(*name).unwrap(), facts.clone())).collect();
    let catalogue = Catalogue::derive(&Arc::new(policy.clone()), &book(), &facts);
    let made = catalogue.groups.values().map(|group| match &group.node_class {
        Some(class) => format!("{} {class}", group.supplier),
        None => group.supplier.to_string(),
    });
    (made.collect(), catalogue.left_out.iter().map(|left| left.why.to_string()).collect())
}

#[test]
fn a_pools_nodes_are_made_by_the_supplier_that_it_names_else_by_the_first_of_the_list_that_can() {
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<String>>();
    let aws = || Cloud::new("aws").unwrap();
    let region = |name: &str| Some([(aws(), Region::new(name).unwrap())].into());
    let all = MarketFacts { clouds: [aws()].into(), node_classes: Some(BTreeSet::new()), ..MarketFacts::default() };
    let elsewhere = MarketFacts { regions: region("other"), ..all.clone() };
    let classes = Some(["image-a", "image-b"].map(|name| NodeClassName::new(name).unwrap()).into());
    let by_class = MarketFacts { regions: region("r"), node_classes: classes, ..all.clone() };
    let facts = [("a", elsewhere), ("b", by_class), ("c", all)];
    let mut policy = Policy::clone(&policy("standard", &json!({"models": ["L4"]}), &json!([])));
    assert_eq!(makers(&policy, &facts).0, text(&["c"]), "whoever there is, where the policy names none");
    let rule = |name: &str| {
        let name = SupplierName::new(name).unwrap();
        SupplierRule {
            kind: SupplierKind::Plugin { endpoint: format!("unix:///{name}"), boot_template: None, tls: None },
            name,
        }
    };
    policy.suppliers = ["b", "a", "c"].map(rule).into();
    assert_eq!(makers(&policy, &facts).0, text(&["c"]), "b wants to be told a node class");
    policy.pools[0].node_class = Some(NodeClassName::new("image-a").unwrap());
    assert_eq!(makers(&policy, &facts).0, text(&["b image-a"]));
    policy.pools[0].supplier = Some(SupplierName::new("c").unwrap());
    let why = "supplier c: it has no node class image-a; it has none by name";
    assert_eq!(makers(&policy, &facts), (text(&[]), text(&[why])));
    policy.pools[0].supplier = Some(SupplierName::new("a").unwrap());
    assert_eq!(makers(&policy, &facts), (text(&[]), text(&["supplier a: it makes no nodes in this region"])));
    policy.suppliers = vec![rule("d")];
    (policy.pools[0].supplier, policy.pools[0].node_class) = (None, None);
    assert_eq!(makers(&policy, &facts), (text(&[]), text(&["no supplier is configured for this cloud"])));
}

#[test]
fn groups_are_split_where_their_supplier_labels_nodes_by_capacity_type() {
    let policy = policy("standard", &json!({"models": ["L4"]}), &json!([]));
    let made = |labels_capacity_type: bool| {
        let mut facts = suppliers();
        for facts in facts.values_mut() {
            facts.labels_capacity_type = labels_capacity_type;
        }
        Catalogue::derive(&policy, &book(), &facts)
    };
    let (whole, split) = (made(false), made(true));
    assert!(whole.groups.values().all(|group| group.offers.len() == policy.pools[0].prefer.len()));
    assert_eq!(split.groups.len(), whole.groups.len() * policy.pools[0].prefer.len());
    for group in split.groups.values() {
        let bought: Vec<&str> = group.offers.iter().map(|offer| offer.market.capacity_type.as_str()).collect();
        assert_eq!(bought, [group.template.labels["karpenter.sh/capacity-type"].as_str()]);
        assert!(group.id.as_str().ends_with(bought[0]), "{}", group.id);
    }
}

#[test]
fn what_the_gpus_cannot_do_leaves_them_out_with_the_reason() {
    assert_eq!(left_out(&json!({})), Vec::<String>::new(), "unknown counts against nothing where nothing is asked");
    assert_eq!(
        left_out(&json!({"minComputeCapability": 8.6})),
        [
            "g4dn.12xlarge: its compute capability is 7.5, the pool wants at least 8.6",
            "p4d.24xlarge: its compute capability is 8.0, the pool wants at least 8.6",
            "x.8: its compute capability is unknown, and the pool wants at least 8.6",
        ]
    );
    assert_eq!(
        left_out(&json!({"needs": ["fp8"]})),
        [
            "g4dn.12xlarge: has no FP8, which the pool needs",
            "g5.xlarge: has no FP8, which the pool needs",
            "p4d.24xlarge: has no FP8, which the pool needs",
            "x.8: it is unknown whether it has FP8, which the pool needs",
        ]
    );
    let without_nvlink = left_out(&json!({"needs": ["nvlink"]}));
    assert_eq!(without_nvlink.len(), 5, "{without_nvlink:?}");
    assert_eq!(without_nvlink[4], "x.8: it is unknown whether it has NVLink, which the pool needs");
    let without_mig = left_out(&json!({"needs": ["mig"]}));
    assert_eq!((without_mig.len(), without_mig[0].as_str()), (5, "g4dn.12xlarge: has no MIG, which the pool needs"));
    // 4 × 16 GiB are as good as 64; 8 × 40 are enough.
    assert_eq!(
        left_out(&json!({"minMemoryPerNodeGiB": 64})),
        [
            "g5.xlarge: has 24576 MiB of GPU memory a node, the pool wants at least 65536",
            "g6.xlarge: has 24576 MiB of GPU memory a node, the pool wants at least 65536",
            "g6f.xlarge: has 6144 MiB of GPU memory a node, the pool wants at least 65536",
        ]
    );
}

#[test]
fn work_is_counted_in_gpus_of_the_slowest_model() {
    let given = json!({"T4": 500, "A10G": 1200, "L4": 1000, "A100": 4000, "H100": 9000, "Mystery": 1000});
    let weighed = catalogue(&json!({"throughput": given}));
    // The slowest is a T4 at 500: four of them do 4 units, an L4 does 2, a quarter of one half a unit, eight H100 8 × 18.
    for (instance_type, millionths) in
        [("g4dn.12xlarge", 4_000_000), ("g6.xlarge", 2_000_000), ("g6f.xlarge", 500_000), ("p5.48xlarge", 144_000_000)]
    {
        assert_eq!(work_of(&weighed, instance_type), Some(Work(millionths)), "{instance_type}");
    }
    assert_eq!(work_of(&catalogue(&json!({})), "g6.xlarge"), None);
}

#[test]
fn work_by_a_figure_leaves_out_what_has_none() {
    let by_bandwidth = catalogue(&json!({"throughputFrom": "bandwidth"}));
    // The slowest is the L4 at 300 GB/s; an H100 has 3,350: 11.166666 times as much, eight of them 89.333333.
    assert_eq!(work_of(&by_bandwidth, "g6.xlarge"), Some(Work(1_000_000)));
    assert_eq!(work_of(&by_bandwidth, "p5.48xlarge"), Some(Work(89_333_333)));
    let unknown = |figure: &str| {
        format!("its {figure} is unknown, and the pool ranks by it: measure it, and write it under gpu.throughput")
    };
    assert_eq!(left_out(&json!({"throughputFrom": "bandwidth"})), [format!("x.8: {}", unknown("memory bandwidth"))]);
    assert_eq!(
        left_out(&json!({"throughputFrom": "fp16"})),
        [format!("p5.48xlarge: {}", unknown("FP16 arithmetic")), format!("x.8: {}", unknown("FP16 arithmetic"))]
    );
}

#[test]
fn the_price_of_work_chooses_where_work_is_weighed() {
    let chosen = |more: Value| {
        let catalogue = catalogue(&more);
        let explanation = what_if(&catalogue, &Memory::default(), &PoolName::new("p").unwrap(), None, 1, Times::at(now()));
        let told = explanation.candidates.iter().map(|c| (c.market.place.instance_type.to_string(), c.verdict.clone()));
        told.collect::<Vec<_>>()
    };
    // By the GPU, a quarter of an L4 at $0.21 beats all: it counts as a GPU.
    assert_eq!(chosen(json!({}))[0], ("g6f.xlarge".to_owned(), OfferVerdict::Chosen { nodes: 1 }));
    // By bandwidth in units of an L4: L4 $0.8048, its quarter $0.84, A10G $1.006 ÷ 2 = $0.503, T4 $3.912 ÷ (4 × 320/300) = $0.916875,
    // A100 $21.9576 ÷ (8 × 1555/300) = $0.529524, H100 $55.04 ÷ 89.333333 = $0.616119.
    let by_work: Vec<(String, OfferVerdict)> = chosen(json!({"throughputFrom": "bandwidth"}));
    let dearer = |by| OfferVerdict::DearerWork { by: UsdPerHour(by) };
    let told: Vec<_> = by_work.iter().map(|(name, verdict)| (name.as_str(), verdict.clone())).collect();
    assert_eq!(
        told,
        [
            ("g5.xlarge", OfferVerdict::Chosen { nodes: 1 }),
            ("p4d.24xlarge", dearer(26_524)),
            ("p5.48xlarge", dearer(113_119)),
            ("g6.xlarge", dearer(301_800)),
            ("g6f.xlarge", dearer(337_000)),
            ("g4dn.12xlarge", dearer(413_875)),
        ]
    );
    assert_eq!(told[1].1.to_string(), "more expensive by $0.0265 per unit of work and hour");
}

/// The rank by work is that of the fractions price ÷ (throughput × GPUs), compared without rounding: prices of work that stand the other
/// way round differ by rounding alone, a millionth and a micro-dollar.
#[test]
fn rank_by_work_is_that_of_the_exact_fractions() {
    let mut seed = 7_u64;
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (seed >> 33) % most
    };
    for _ in 0..300 {
        let figures: Vec<u64> = (0..6).map(|_| next(5_000)).collect();
        let given: serde_json::Map<_, _> = ["T4", "A10G", "L4", "A100", "H100", "Mystery"]
            .iter()
            .zip(&figures)
            .map(|(model, figure)| ((*model).to_owned(), json!(figure)))
            .collect();
        let catalogue = catalogue(&json!({"throughput": given}));
        let weighed: Vec<_> = catalogue
            .groups
            .values()
            .map(|group| {
                let parts =
                    price_parts(&catalogue, &crate::state::memory::Memory::default(), group, &group.offers[0], Wall(now()))
                        .unwrap();
                let figure = given[group.spec.gpu_model.as_str()].as_u64().unwrap();
                let fraction = (i128::from(parts.quote.price.0), i128::from(figure) * i128::from(group.spec.gpus.0));
                (fraction, parts.per_unit())
            })
            .collect();
        for (a, a_price) in &weighed {
            for (b, b_price) in &weighed {
                if a.0 * b.1 < b.0 * a.1 {
                    assert!(a_price.0 <= b_price.0 + b_price.0 / 1_000_000 + 1, "{figures:?}: {a:?} {b:?}");
                }
            }
        }
    }
}

#[test]
fn groups_of_pools_that_weigh_no_work_compare_with_those_that_do() {
    let weighed = catalogue(&json!({"throughputFrom": "bandwidth"}));
    let group = |catalogue: &Catalogue| {
        catalogue.groups.values().find(|group| group.place.instance_type.as_str() == "p4d.24xlarge").unwrap().as_ref().clone()
    };
    let price = UsdPerHour(21_957_600);
    // Eight GPUs that each do 1555/300 = 5.183333 L4s' work: $21.9576 ÷ 5.183333 = $4.236193, within 8 rounded micro-dollars.
    assert_eq!(group(&weighed).weighed(price), UsdPerHour(529_524 * 8));
    assert_eq!(group(&catalogue(&json!({}))).weighed(price), price);
}

/// A local zone has a spot price and no on-demand price: it is not sold there on demand. Nor is spot where its quote is pinned.
#[test]
fn a_price_row_of_a_region_opens_no_market_that_the_tables_do_not_sell() {
    let mut book = book();
    let market = |zone: &str, capacity_type| Market {
        place: Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("r").unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new("g6.xlarge").unwrap(),
        },
        capacity_type,
    };
    let quote = Quote { price: UsdPerHour(300_000), kind: QuoteKind::List, as_of: None, source: "test".into() };
    book.insert(market("local", CapacityType::Spot), Entry::Price(quote));
    book.insert(market("z", CapacityType::Spot), Entry::NoSignal(NoSignal::PinnedAtOnDemand));
    let row = |capacity_type: &str, zone: Value| json!({"cloud": "aws", "region": "r", "zone": zone, "instanceType": "g6.xlarge", "capacityType": capacity_type, "usdPerHour": 0.1});
    let sold = |prices: &Value| {
        let policy = policy("bestEffort", &json!({"models": ["L4"]}), prices);
        let catalogue = Catalogue::derive(&policy, &book, &suppliers());
        let offers = catalogue.groups.values().flat_map(|group| &group.offers);
        let mut operators: Vec<String> = offers
            .filter(|offer| matches!(&offer.entry, Some(Entry::Price(quote)) if quote.kind == QuoteKind::Operator))
            .map(|offer| format!("{} {}", offer.market.place.zone, offer.market.capacity_type))
            .collect();
        operators.sort();
        operators
    };
    assert_eq!(sold(&json!([row("on-demand", Value::Null), row("spot", Value::Null)])), ["local spot", "z on-demand"]);
    // A zone that the operator names is sold there; one whose spot is known not to exist is not.
    assert_eq!(sold(&json!([row("on-demand", json!("local")), row("spot", json!("z"))])), ["local on-demand"]);
}

/// No table tells the zones of some types: the operator's word does.
#[test]
fn a_price_row_with_a_zone_opens_a_type_whose_zones_no_table_tells() {
    let mut book = book();
    let name = || (Cloud::new("aws").unwrap(), Region::new("r").unwrap(), InstanceType::new("p5.4xlarge").unwrap());
    let (cloud, region, instance_type) = name();
    let mut spec = InstanceSpec::clone(book.spec(&cloud, &InstanceType::new("p5.48xlarge").unwrap()).unwrap());
    (spec.instance_type, spec.gpus) = (instance_type.clone(), Milli(1000));
    book.insert_spec(spec);
    let quote = Quote { price: UsdPerHour(6_880_000), kind: QuoteKind::List, as_of: None, source: "test".into() };
    book.insert_unzoned(cloud, region, instance_type, quote);
    let groups = |prices: &Value| {
        let policy = policy("standard", &json!({"models": ["H100"], "count": [1]}), prices);
        Catalogue::derive(&policy, &book, &suppliers()).groups.len()
    };
    assert_eq!(groups(&json!([])), 0);
    let row = json!({"cloud": "aws", "region": "r", "zone": "r-az9", "instanceType": "p5.4xlarge", "capacityType": "on-demand", "usdPerHour": 6.88});
    assert_eq!(groups(&json!([row])), 1);
}

/// A supplier knows a type that the table does not, or knows it better; GPUs that a table counts in parts stay as they are.
#[test]
fn what_a_supplier_tells_of_a_type_is_what_its_template_promises() {
    let cloud = || Cloud::new("aws").unwrap();
    let told = |gpus, network, local_disk| {
        let fact = MachineFact { vcpus: 4, memory: MiB(15_000), gpus, network, local_disk, as_of: now() };
        let machines = ["g6.xlarge", "g6f.xlarge"].map(|name| ((cloud(), InstanceType::new(name).unwrap()), fact.clone()));
        MarketFacts { clouds: [cloud()].into(), machines: machines.into(), ..MarketFacts::default() }
    };
    let derived = |facts: MarketFacts| {
        let policy = policy("standard", &json!({"models": ["L4"]}), &json!([]));
        Catalogue::derive(&policy, &book(), &[(SupplierName::new("s").unwrap(), facts)].into())
    };
    let of = |catalogue: &Catalogue, name: &str| {
        let group = catalogue.groups.values().find(|group| group.place.instance_type.as_str() == name).unwrap();
        (group.template.clone(), Arc::clone(&group.spec))
    };
    let table = derived(MarketFacts { clouds: [cloud()].into(), ..MarketFacts::default() });
    let network = Network { pods: 29, cards: 1, efa_interfaces: 0 };
    let live = derived(told(Some(1), Some(network), Some(MiB::from_gib(250))));
    let ((before, _), (after, spec)) = (of(&table, "g6.xlarge"), of(&live, "g6.xlarge"));
    assert_eq!((before.capacity.pods, after.capacity.pods), (110, 29));
    assert!(after.capacity.memory < MiB(15_000) && before.capacity.memory != after.capacity.memory);
    assert_eq!((spec.network, spec.local_disk), (Some(network), Some(MiB::from_gib(250))), "what launches go by");
    assert!(table.groups.keys().eq(live.groups.keys()), "the autoscaler keeps its groups");
    // What is not told is the table's.
    assert_eq!(of(&derived(told(None, None, None)), "g6.xlarge").0.capacity.pods, 110);
    let many = derived(told(Some(2), None, None));
    assert_eq!((of(&many, "g6.xlarge").0.capacity.gpus, of(&many, "g6f.xlarge").0.capacity.gpus), (2, 1));
}
