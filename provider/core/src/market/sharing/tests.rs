use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::base::engine_clock::Times;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, SupplierName, ZoneId};
use crate::base::units::{Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::template::GPU_LABEL;
use crate::choose::candidate::OfferVerdict;
use crate::choose::what_if::what_if;
use crate::facts::supply::MarketFacts;
use crate::market::offer::{Arch, CapacityType, GpuNames, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::policy::{Policy, RawPolicy, check_against_prices};
use crate::state::memory::Memory;

/// Model, GiB, GB/s, FP16 gigaflops, MIG profiles.
type Gpu = (&'static str, u64, u32, u64, &'static str);
const GPUS: [Gpu; 7] = [
    ("L4", 24, 300, 121_000, ""),
    ("A30", 24, 933, 165_000, "1g.6gb 2g.12gb 4g.24gb"),
    ("A100", 40, 1_555, 312_000, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
    ("A100", 80, 2_039, 312_000, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    ("H100", 80, 3_350, 989_000, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    ("H200", 141, 4_800, 989_000, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
    ("RTXPRO6000", 96, 1_597, 0, "1g.24gb 2g.48gb 4g.96gb"),
];

/// Name, model, GiB of a GPU, GPUs in thousandths, price in micro-dollars.
const TYPES: [(&str, &str, u64, u32, i64); 6] = [
    ("g6.xlarge", "L4", 24, 1_000, 804_800),
    ("g6f.xlarge", "L4", 24, 250, 210_000),
    ("p4d.24xlarge", "A100", 40, 8_000, 21_957_600),
    ("p4de.24xlarge", "A100", 80, 8_000, 27_447_000),
    ("p5.4xlarge", "H100", 80, 1_000, 6_880_000),
    ("nc.part", "A100", 80, 500, 2_000_000),
];

fn spec_of(model: &str, gib: u64) -> GpuSpec {
    let (_, _, gb_s, gflops, profiles) = GPUS.into_iter().find(|(name, size, ..)| (*name, *size) == (model, gib)).unwrap();
    let profiles: Vec<MigProfile> = profiles.split_whitespace().map(|text| text.parse().unwrap()).collect();
    GpuSpec {
        model: GpuModel::new(model).unwrap(),
        memory: MiB::from_gib(gib),
        bandwidth_gb_s: Some(gb_s),
        fp16_gflops: Some(gflops),
        fp8_gflops: None,
        compute_capability: None,
        mig_max_instances: Some(if profiles.is_empty() { 0 } else { 7 }),
        mig_profiles: profiles,
        nvlink_gb_s: None,
        names: GpuNames { product: Some(format!("NVIDIA-{model}")), ..GpuNames::default() },
    }
}

fn book() -> PriceBook {
    let mut book = PriceBook::new();
    for (model, gib, ..) in GPUS {
        book.insert_gpu(spec_of(model, gib));
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
            vcpus: Some(16),
            memory: Some(MiB::from_gib(64)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: None, source: "test".into() };
        book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
    }
    book
}

/// A pool of these models that shares so.
fn raw(models: &[&str], sharing: &Value) -> RawPolicy {
    serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "defaults": {"unknownQuota": "allow"},
        "pools": [{
            "name": "p", "workload": "dev", "capacity": {"prefer": ["on-demand"]}, "gpu": {"models": models},
            "where": {"clouds": ["aws"], "regions": ["r"]}, "limits": {"maxNodes": 9}, "sharing": sharing,
        }],
    }))
    .unwrap()
}

fn catalogue_of(raw: &RawPolicy) -> Catalogue {
    let policy = Policy::try_from_raw(raw).unwrap_or_else(|faults| panic!("{faults:?}"));
    let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
    Catalogue::derive(&Arc::new(policy), &book(), &[(SupplierName::new("test").unwrap(), facts)].into())
}

fn catalogue(models: &[&str], sharing: &Value) -> Catalogue {
    catalogue_of(&raw(models, sharing))
}

fn group(catalogue: &Catalogue, instance_type: &str) -> Group {
    catalogue.groups.values().find(|group| group.place.instance_type.as_str() == instance_type).unwrap().as_ref().clone()
}

/// `nvidia.com/gpu`, the other resources, whether the GPU label is there, and the labels of NVIDIA's own.
fn seen(group: &Group) -> (u32, String, bool, String) {
    let named: Vec<String> = group.template.slices.iter().map(|(name, number)| format!("{name}={number}")).collect();
    let labels =
        group.template.labels.iter().filter_map(|(key, value)| Some(format!("{}={value}", key.strip_prefix("nvidia.com/")?)));
    let labels: Vec<String> = labels.collect();
    assert_eq!(group.template.capacity.gpus, group.template.allocatable.gpus);
    (group.template.allocatable.gpus, named.join(" "), group.template.labels.contains_key(GPU_LABEL), labels.join(" "))
}

#[test]
fn instances_that_fit_are_those_of_the_guide() {
    // The guide's column "Number of Instances Available", and the numbers in the MIG manager's default configuration.
    for (model, gib, most) in [
        ("A30", 24, "1g.6gb=4 2g.12gb=2 4g.24gb=1"),
        ("A100", 40, "1g.5gb=7 1g.10gb=4 2g.10gb=3 3g.20gb=2 4g.20gb=1 7g.40gb=1"),
        ("H100", 80, "1g.10gb=7 1g.20gb=4 2g.20gb=3 3g.40gb=2 4g.40gb=1 7g.80gb=1"),
        ("H200", 141, "1g.18gb=7 1g.35gb=4 2g.35gb=3 3g.71gb=2 4g.71gb=1 7g.141gb=1"),
        ("RTXPRO6000", 96, "1g.24gb=4 2g.48gb=2 4g.96gb=1"),
    ] {
        let geometry = Geometry::of(&spec_of(model, gib)).unwrap();
        let told: Vec<_> = geometry.profiles().map(|p| format!("{p}={}", geometry.most(p).unwrap())).collect();
        assert_eq!(told.join(" "), most, "{model} {gib}");
    }
    for (model, gib, balanced) in [
        ("A30", 24, "1g.6gb=2 2g.12gb=1"),
        ("A100", 40, "1g.5gb=2 2g.10gb=1 3g.20gb=1"),
        ("H100", 80, "1g.10gb=2 2g.20gb=1 3g.40gb=1"),
        ("H200", 141, "1g.18gb=2 2g.35gb=1 3g.71gb=1"),
        ("RTXPRO6000", 96, "1g.24gb=2 2g.48gb=1"),
    ] {
        let instances = MigLayout::Balanced.on(&Geometry::of(&spec_of(model, gib)).unwrap()).unwrap();
        let told: Vec<_> = instances.iter().map(|(profile, number)| format!("{profile}={number}")).collect();
        assert_eq!(told.join(" "), balanced, "{model} {gib}");
    }
}

/// Whether instances can be placed on a GPU, by trying: each is as long as the guide draws it, and begins where the guide lets it.
fn placed(left: &mut Vec<(u32, &'static [u32])>, taken: &mut [bool; 8]) -> bool {
    let Some((length, starts)) = left.pop() else { return true };
    for start in starts {
        let mut span = *start as usize..(start + length) as usize;
        if span.clone().all(|at| !taken[at]) {
            span.clone().for_each(|at| taken[at] = true);
            if placed(left, taken) {
                return true;
            }
            span.by_ref().for_each(|at| taken[at] = false);
        }
    }
    left.push((length, starts));
    false
}

/// On a GPU of seven slices what counting allows is what placing allows, for every set of instances.
#[test]
fn what_is_counted_to_fit_can_be_placed() {
    // `nvidia-smi mig -lgipp` on an A100, as the guide prints it: where each profile may begin, of eight memory slices.
    let places: [(&str, u32, &'static [u32]); 6] = [
        ("1g.10gb", 1, &[0, 1, 2, 3, 4, 5, 6]),
        ("1g.20gb", 2, &[0, 2, 4, 6]),
        ("2g.20gb", 2, &[0, 2, 4]),
        ("3g.40gb", 4, &[0, 4]),
        ("4g.40gb", 4, &[0]),
        ("7g.80gb", 8, &[0]),
    ];
    let geometry = Geometry::of(&spec_of("A100", 80)).unwrap();
    let (mut fit, mut tried) = (0, 0);
    for code in 0..8_u32 * 5 * 4 * 3 * 2 * 2 {
        let (mut rest, mut own, mut left) = (code, BTreeMap::new(), Vec::new());
        for ((name, length, starts), most) in places.iter().zip([8, 5, 4, 3, 2, 2]) {
            let number = rest % most;
            rest /= most;
            if number > 0 {
                own.insert(name.parse::<MigProfile>().unwrap(), number);
            }
            left.extend((0..number).map(|_| (*length, *starts)));
        }
        if own.is_empty() {
            continue;
        }
        // Processors are seven, wherever the memory lies.
        let compute: u32 = own.iter().map(|(profile, number)| profile.compute * number).sum();
        let can = compute <= 7 && placed(&mut left, &mut [false; 8]);
        assert_eq!(MigLayout::Own(own.clone()).on(&geometry).is_ok(), can, "{own:?}");
        (tried, fit) = (tried + 1, fit + u32::from(can));
    }
    assert_eq!(tried, 1_919);
    assert!(fit > 40 && fit < 200, "{fit} fit");
}

#[test]
fn a_template_advertises_what_the_device_plugin_does() {
    // Seven of 1g.10gb on each of eight GPUs of 80 GiB, four on each of 40.
    let single = catalogue(&["A100"], &json!({"mig": "all-1g.10gb"}));
    let labels = "gpu.product=NVIDIA-A100-MIG-1g.10gb mig.config=all-1g.10gb mig.strategy=single";
    assert_eq!(seen(&group(&single, "p4de.24xlarge")), (56, String::new(), true, labels.to_owned()));
    assert_eq!(seen(&group(&single, "p4d.24xlarge")).0, 32);
    assert_eq!(group(&single, "p4d.24xlarge").slices, Some(32));

    let mixed = catalogue(&["A100"], &json!({"mig": "all-1g.10gb", "migStrategy": "mixed"}));
    let labels = "gpu.product=NVIDIA-A100 mig.config=all-1g.10gb mig.strategy=mixed";
    assert_eq!(seen(&group(&mixed, "p4de.24xlarge")), (0, "nvidia.com/mig-1g.10gb=56".to_owned(), false, labels.to_owned()));

    let balanced = group(&catalogue(&["H100"], &json!({"mig": "all-balanced"})), "p5.4xlarge");
    let labels = "gpu.product=NVIDIA-H100 mig.config=all-balanced mig.strategy=mixed";
    let named = "nvidia.com/mig-1g.10gb=2 nvidia.com/mig-2g.20gb=1 nvidia.com/mig-3g.40gb=1";
    assert_eq!(seen(&balanced), (0, named.to_owned(), false, labels.to_owned()));
    // A slice is a compute slice where they differ: 2 + 2 + 3.
    assert_eq!(balanced.slices, Some(7));

    let own = group(&catalogue(&["H100"], &json!({"mig": {"1g.10gb": 2, "3g.40gb": 1}})), "p5.4xlarge");
    let labels = "gpu.product=NVIDIA-H100 mig.config=2x1g.10gb-1x3g.40gb mig.strategy=mixed";
    assert_eq!(seen(&own), (0, "nvidia.com/mig-1g.10gb=2 nvidia.com/mig-3g.40gb=1".to_owned(), false, labels.to_owned()));

    let turns = catalogue(&["L4", "A100"], &json!({"timeSlicing": 4}));
    let labels = "device-plugin.config=time-slicing-4 gpu.count=1 gpu.product=NVIDIA-L4-SHARED gpu.replicas=4 \
                  gpu.sharing-strategy=time-slicing";
    assert_eq!(seen(&group(&turns, "g6.xlarge")), (4, String::new(), true, labels.to_owned()));
    assert_eq!(seen(&group(&turns, "p4d.24xlarge")).0, 32);
    // The cloud's part of a GPU is one GPU to the device plugin, and a vGPU by its product name.
    let labels = "device-plugin.config=time-slicing-4 gpu.replicas=4 gpu.sharing-strategy=time-slicing";
    assert_eq!(seen(&group(&turns, "g6f.xlarge")), (4, String::new(), true, labels.to_owned()));

    let renamed = group(&catalogue(&["L4"], &json!({"timeSlicing": 4, "renameByDefault": true})), "g6.xlarge");
    let labels = "device-plugin.config=time-slicing-4-shared gpu.count=1 gpu.product=NVIDIA-L4 gpu.replicas=4 \
                  gpu.sharing-strategy=time-slicing";
    assert_eq!(seen(&renamed), (0, "nvidia.com/gpu.shared=4".to_owned(), false, labels.to_owned()));
}

#[test]
fn labels_of_the_operators_own_stand() {
    let mut own = raw(&["L4"], &json!({"timeSlicing": 4}));
    own.pools[0].template.labels = [("nvidia.com/device-plugin.config".to_owned(), "any".to_owned())].into();
    assert_eq!(group(&catalogue_of(&own), "g6.xlarge").template.labels["nvidia.com/device-plugin.config"], "any");
}

#[test]
fn a_changed_layout_is_a_new_group() {
    let id = |sharing: &Value| group(&catalogue(&["A100"], sharing), "p4de.24xlarge").id;
    let whole = id(&Value::Null);
    assert_eq!(whole.as_str(), "p.p4de-24xlarge.z");
    let others = [
        json!({"mig": "all-1g.10gb"}),
        json!({"mig": "all-1g.10gb", "migStrategy": "mixed"}),
        json!({"mig": "all-1g.20gb"}),
        json!({"mig": {"1g.10gb": 7}}),
        json!({"timeSlicing": 4}),
        json!({"timeSlicing": 5}),
        json!({"timeSlicing": 4, "renameByDefault": true}),
    ];
    let ids: BTreeSet<_> = others.iter().map(id).chain([whole.clone()]).collect();
    assert_eq!(ids.len(), 8, "{ids:?}");
    // The operator's own words about workloads show on no node.
    assert_eq!(id(&json!({"timeSlicing": 4, "workloads": ["dev", "training"]})), id(&json!({"timeSlicing": 4})));
}

fn left_out(catalogue: &Catalogue) -> Vec<String> {
    catalogue.left_out.iter().map(|left| format!("{}: {}", left.place.instance_type, left.why)).collect()
}

#[test]
fn places_that_cannot_be_split_so_are_left_out_with_the_reason() {
    assert_eq!(
        left_out(&catalogue(&["A100", "L4"], &json!({"mig": "all-1g.5gb"}))),
        [
            "g6.xlarge: cannot be split by MIG, and the pool shares GPUs so",
            "g6f.xlarge: has a part of a GPU, which cannot be split again by MIG, and the pool shares GPUs so",
            "nc.part: has a part of a GPU, which cannot be split again by MIG, and the pool shares GPUs so",
            "p4de.24xlarge: has no MIG profile 1g.5gb: it has 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, and the pool shares \
             GPUs so",
        ]
    );
    // What a pod gets must have the memory asked for: a MIG instance its own, a turn on a GPU all of it.
    let with_memory = |sharing: &Value| {
        let mut raw = raw(&["H100"], sharing);
        raw.pools[0].gpu.min_memory_gib = Some(20);
        left_out(&catalogue_of(&raw))
    };
    assert_eq!(with_memory(&json!({"mig": "all-1g.10gb"})), ["p5.4xlarge: has 10240 MiB a GPU, the pool wants at least 20480"]);
    assert_eq!(with_memory(&json!({"mig": "all-1g.20gb"})), Vec::<String>::new());
    assert_eq!(with_memory(&json!({"timeSlicing": 8})), Vec::<String>::new());
}

/// What a plan of one node says of each offer, in its order: instance type, $ per unit in micro-dollars, verdict.
fn told(catalogue: &Catalogue) -> Vec<(String, i64, OfferVerdict)> {
    let pool = catalogue.policy.pools[0].name.clone();
    what_if(catalogue, &Memory::default(), &pool, None, 1, Times::at(jiff::Timestamp::UNIX_EPOCH))
        .candidates
        .into_iter()
        .map(|c| (c.market.place.instance_type.to_string(), c.price.unwrap().per_unit().0, c.verdict))
        .collect()
}

#[test]
fn a_node_is_chosen_by_its_price_and_shown_with_that_of_a_slice() {
    let dearer = |by| OfferVerdict::Dearer { by: UsdPerHour(by) };
    // Whole H100s are more expensive ($6.88) than A100s of 40 GiB ($2.7447) and 80 ($3.4309). Of 1g.10gb the smaller A100 takes only four:
    // $27.447 ÷ 56 = $0.490125, $21.9576 ÷ 32 = $0.686175, $6.88 ÷ 7 = $0.982857.
    assert_eq!(
        told(&catalogue(&["A100", "H100"], &json!({"mig": "all-1g.10gb"}))),
        [
            ("p5.4xlarge".to_owned(), 982_857, OfferVerdict::Chosen { nodes: 1 }),
            ("p4d.24xlarge".to_owned(), 686_175, dearer(15_077_600)),
            ("p4de.24xlarge".to_owned(), 490_125, dearer(20_567_000)),
        ]
    );
    assert_eq!(dearer(15_077_600).to_string(), "more expensive by $15.0776 per node and hour");
    // Three slices of one GPU are used of seven: the rest is paid all the same. $6.88 ÷ (2 + 3) = $1.376 for a compute slice.
    assert_eq!(told(&catalogue(&["H100"], &json!({"mig": {"1g.10gb": 2, "3g.40gb": 1}})))[0].1, 1_376_000);
    // Four turns on an L4: $0.8048 ÷ 4.
    assert_eq!(
        told(&catalogue(&["L4"], &json!({"timeSlicing": 4})))[0].1,
        52_500,
        "a quarter of an L4, shared by four: $0.21 ÷ 4"
    );
}

#[test]
fn work_is_that_of_the_slices() {
    let weighed = |sharing: &Value, gpu: Value| {
        let mut raw = raw(&["A100", "H100"], sharing);
        let merged = serde_json::to_value(&raw.pools[0].gpu).unwrap();
        let mut merged = merged.as_object().unwrap().clone();
        merged.extend(gpu.as_object().unwrap().clone());
        raw.pools[0].gpu = serde_json::from_value(merged.into()).unwrap();
        catalogue_of(&raw)
    };
    // An H100 does three times an A100's work. A slice is a seventh of either, so an H100's does three times an A100's, whatever the A100's
    // size: the node of 40 GiB does 32 units, that of 80 does 56, the H100 21. $27.447 ÷ 56, $6.88 ÷ 21 = $0.327619, $21.9576 ÷ 32.
    let catalogue = weighed(&json!({"mig": "all-1g.10gb"}), json!({"throughput": {"A100": 1, "H100": 3}}));
    let units = told(&catalogue).into_iter().map(|(name, unit, _)| (name, unit)).collect::<Vec<_>>();
    let expected = [("p5.4xlarge", 327_619), ("p4de.24xlarge", 490_125), ("p4d.24xlarge", 686_175)];
    assert_eq!(units, expected.map(|(name, unit)| (name.to_owned(), unit)));
    // Across pools a node that does the slowest slices' work compares by its price, and one that does three times that by a third of it.
    assert_eq!(group(&catalogue, "p4de.24xlarge").weighed(UsdPerHour(27_447_000)), UsdPerHour(490_125 * 56));
    assert_eq!(group(&catalogue, "p5.4xlarge").weighed(UsdPerHour(6_880_000)), UsdPerHour(327_619 * 7));

    // By bandwidth: an instance of 3g has half of the memory, so both of a GPU have all of it; by arithmetic they have six sevenths. An H100
    // then has 3350 GB/s against the slowest, an A100 of 40 GiB with 1555; but 3g.40gb is only on those of 80 GiB, with 2039.
    // $6.88 ÷ (2 × 3350/2039) = $2.093779; $27.447 ÷ 16 = $1.715438.
    let catalogue = weighed(&json!({"mig": "all-3g.40gb"}), json!({"throughputFrom": "bandwidth"}));
    let units = told(&catalogue).into_iter().map(|(name, unit, _)| (name, unit)).collect::<Vec<_>>();
    assert_eq!(units, [("p4de.24xlarge".to_owned(), 1_715_438), ("p5.4xlarge".to_owned(), 2_093_779)]);
}

#[test]
#[rustfmt::skip] // A case a line.
fn bad_sharing_is_named_with_its_cure() {
    let faults = |models: &[&str], workload: &str, sharing: &Value| {
        let mut raw = raw(models, sharing);
        raw.pools[0].workload = serde_json::from_value(json!(workload)).unwrap();
        let mut faults = Policy::try_from_raw(&raw).err().unwrap_or_default();
        faults.extend(check_against_prices(&raw, &book()));
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (models, workload, sharing, said) in [
        (&["L4"][..], "dev", json!({}), "pools[0].sharing names no way to share: name mig or timeSlicing, or leave sharing out for whole GPUs"),
        (&["H100"], "dev", json!({"mig": "all-1g.10gb", "timeSlicing": 2}), "pools[0].sharing has mig and timeSlicing, and pods that take turns on a MIG instance lose the isolation it is for: name one"),
        (&["L4"], "dev", json!({"timeSlicing": 0}), "pools[0].sharing.timeSlicing is 0, and no pod would get a turn: write how many pods take turns on a GPU, from 2"),
        (&["L4"], "dev", json!({"timeSlicing": 1}), "pools[0].sharing.timeSlicing is 1, which shares nothing: write how many pods take turns on a GPU, or leave it out"),
        (&["L4"], "dev", json!({"timeSlicing": 111}), "pools[0].sharing.timeSlicing 111 is above 110, more pods than a node takes: lower it"),
        (&["L4"], "dev", json!({"timeSlicing": 4, "migStrategy": "mixed"}), "pools[0].sharing.migStrategy names MIG instances, and mig makes none: remove it, or name mig"),
        (&["H100"], "dev", json!({"mig": "all-1g.10gb", "renameByDefault": true}), "pools[0].sharing.renameByDefault applies to time-sliced GPUs: remove it, or name timeSlicing"),
        (&["H100"], "dev", json!({"mig": "1g.10gb"}), r#"pools[0].sharing.mig "1g.10gb" is not a MIG layout: write all-balanced, all-1g.10gb, or instances such as { 1g.10gb: 2 }"#),
        (&["H100"], "dev", json!({"mig": "all-disabled"}), r#"pools[0].sharing.mig "all-disabled" is not a MIG layout: write all-balanced, all-1g.10gb, or instances such as { 1g.10gb: 2 }"#),
        (&["H100"], "dev", json!({"mig": {}}), "pools[0].sharing.mig is empty: name at least one MIG profile, such as 1g.10gb"),
        (&["H100"], "dev", json!({"mig": {"1g.10gb": 0}}), r#"pools[0].sharing.mig["1g.10gb"] is 0: write how many instances of it every GPU has, or remove it"#),
        (&["H100"], "dev", json!({"mig": {"1g-10gb": 1}}), "pools[0].sharing.mig.1g-10gb is not a MIG profile: write it like 1g.10gb"),
        (&["H100"], "dev", json!({"mig": "all-balanced", "migStrategy": "single"}), "pools[0].sharing.migStrategy single needs instances that are all alike: write mixed, or a layout such as all-1g.10gb"),
        // What the hardware lacks.
        (&["H100", "L4"], "dev", json!({"mig": "all-1g.10gb"}), "pools[0].sharing.mig does not fit L4, which cannot be split by MIG: remove it from gpu.models, or use timeSlicing"),
        (&["H200"], "dev", json!({"mig": "all-1g.10gb"}), "pools[0].sharing.mig does not fit H200, which has no MIG profile 1g.10gb: it has 1g.18gb, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, 7g.141gb: remove it from gpu.models, or name another layout"),
        (&["H100"], "dev", json!({"mig": {"3g.40gb": 2, "1g.10gb": 1}}), "pools[0].sharing.mig does not fit H100, which has 7 compute slices and 8 of memory, and these MIG instances take 7 and 9: name fewer, or remove it from gpu.models"),
        (&["H100"], "dev", json!({"mig": {"1g.10gb": 8}}), "pools[0].sharing.mig does not fit H100, which has 7 compute slices and 8 of memory, and these MIG instances take 8 and 8: name fewer, or remove it from gpu.models"),
        // What must be taken on by name.
        (&["L4"], "inference", json!({"timeSlicing": 4}), "pools[0].sharing time-slices inference: each answer waits for the other pods' turns, and one pod can take the memory of all: use mig, whole GPUs, or say acknowledge: [timeSlicedInference]"),
        (&["H100"], "training", json!({"mig": "all-3g.40gb", "workloads": ["training", "inference"]}), "pools[0].sharing puts training and inference on one GPU, where training slows the answers: give each a pool of its own, or say acknowledge: [mixedWorkloads]"),
        (&["H100"], "dev", json!({"mig": "all-3g.40gb", "workloads": ["training", "dev", "dev"]}), "pools[0].sharing.workloads[2] dev is listed twice: remove one"),
        (&["H100"], "dev", json!({"mig": "all-3g.40gb", "workloads": ["training"]}), "pools[0].sharing.workloads lacks the pool's own workload: add dev"),
        (&["H100"], "dev", json!({"mig": "all-3g.40gb", "acknowledge": ["mixedWorkloads"]}), "pools[0].sharing.acknowledge names mixedWorkloads, which this pool does not do: remove it"),
        (&["H100"], "inference", json!({"mig": "all-3g.40gb", "acknowledge": ["timeSlicedInference"]}), "pools[0].sharing.acknowledge names timeSlicedInference, which this pool does not do: remove it"),
    ] {
        assert_eq!(faults(models, workload, &sharing), [said], "{sharing}");
    }
    for (models, workload, sharing) in [
        // Only one of the A100's two sizes has it, which is enough: the other is left out.
        (&["A100"][..], "dev", json!({"mig": "all-1g.5gb"})),
        (&["L4"], "inference", json!({"timeSlicing": 4, "acknowledge": ["timeSlicedInference"]})),
        (&["L4"], "dev", json!({"timeSlicing": 4, "workloads": ["dev", "training", "inference"], "acknowledge": ["timeSlicedInference", "mixedWorkloads"]})),
        (&["H100"], "inference", json!({"mig": "all-1g.10gb"})),
    ] {
        assert_eq!(faults(models, workload, &sharing), Vec::<String>::new(), "{sharing}");
    }
}

#[test]
fn profiles_are_read_as_they_are_written() {
    let read = |text: &str| text.parse::<MigProfile>().ok();
    assert_eq!(
        read("7g.141gb").map(|profile| (profile.to_string(), profile.resource())),
        Some(("7g.141gb".into(), "nvidia.com/mig-7g.141gb".into()))
    );
    for text in
        ["", "g.gb", "1g", "1g.10", "0g.10gb", "1g.010gb", "1g.10gb+me", "1g.10gb.me", "-1g.10gb", "1G.10GB", "1g.99999gb"]
    {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn slices_add_up_by_name() {
    assert!(
        ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb.shared"]
            .iter()
            .all(|name| Slices::is_slice(name))
    );
    assert!(["nvidia.com/gpu", "nvidia.com/gpuish", "amd.com/gpu", "cpu"].iter().all(|name| !Slices::is_slice(name)));
    let mut has: Slices = [("a", 2), ("b", 1), ("c", 0)].into_iter().collect();
    has.add("a", 1);
    has.raise("b", 4);
    has.raise("a", 1);
    assert_eq!((has.iter().collect::<Vec<_>>(), has.total()), (vec![("a", 3), ("b", 4)], 7));
    let asks = |pairs: &[(&'static str, u64)]| pairs.iter().copied().collect::<Slices>();
    assert!(asks(&[("a", 3)]).within(&has) && asks(&[]).within(&has));
    assert!(!asks(&[("a", 4)]).within(&has) && !asks(&[("d", 1)]).within(&has));
}
