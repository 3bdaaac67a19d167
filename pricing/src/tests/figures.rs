//! The built-in tables: figures checked by hand, counts, and what must hold of every line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use csv::StringRecord;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::market::offer::{Arch, CapacityType, GpuFeature, InstanceSpec};
use stoker_core::market::price::{Entry, NoSignal, PriceBook, Quote, QuoteKind};
use stoker_core::market::sharing::{Geometry, Misfit};

use super::{book, market, place, table};
use crate::{embedded, load_dir};

const SOURCES: &str = include_str!("../../tables/SOURCES.md");
const OFFERS: [&str; 4] = ["aws.csv", "azure.csv", "gcp.csv", "gpu-clouds.csv"];

fn price(book: &PriceBook, at: (&str, &str, &str, &str), capacity_type: CapacityType) -> Quote {
    let market = market(at.0, at.1, at.2, at.3, capacity_type);
    match book.entry(&market) {
        Some(Entry::Price(quote)) => quote.clone(),
        other => panic!("{market}: {other:?}"),
    }
}

fn spec(book: &PriceBook, cloud: &str, instance_type: &str) -> InstanceSpec {
    let key = (Cloud::new(cloud).unwrap(), InstanceType::new(instance_type).unwrap());
    book.spec(&key.0, &key.1).unwrap_or_else(|| panic!("{cloud}/{instance_type}")).as_ref().clone()
}

fn rows(name: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(table(name).as_bytes());
    let headers = reader.headers().unwrap().clone();
    let named = |row: StringRecord| headers.iter().map(str::to_owned).zip(row.iter().map(str::to_owned)).collect();
    reader.records().map(|row| named(row.unwrap())).collect()
}

#[test]
fn commitments_cost_what_the_lists_say() {
    use stoker_core::base::kinds::CommitmentKind::{CommittedUse, ReservedInstance, SavingsPlan};
    let book = book();
    let terms = |at: (&str, &str, &str, &str)| {
        let rates = book.terms(&place(at.0, at.1, at.2, at.3))?;
        let usd = |rate: Option<UsdPerHour>| rate.map(|rate| rate.0);
        Some((rates.kind, usd(rates.one_year), usd(rates.three_years), rates.source.to_string()))
    };
    let source = |text: &str| text.to_owned();
    assert_eq!(
        terms(("aws", "us-east-1", "use1-az6", "g6.xlarge")),
        Some((ReservedInstance, Some(523_900), Some(369_400), source("standard-ri-no-upfront by sooddvs@2026-06-15")))
    );
    assert_eq!(
        terms(("gcp", "us-central1", "us-central1-a", "g2-standard-4")),
        Some((CommittedUse, Some(445_304), Some(318_075), source("resource-cud by cyclenerd@2026-07-30")))
    );
    // No source tells one year of p5; Azure's plans are told for a few sizes; RunPod's plan is nothing that a policy can name.
    let p5 = terms(("aws", "us-east-1", "use1-az6", "p5.48xlarge")).unwrap();
    assert_eq!((p5.0, p5.1, p5.2), (ReservedInstance, None, Some(23_777_300)));
    let of_azure = rows("azure.csv").iter().filter(|row| row["reserved_kind"] == "savings-plan").count();
    assert_eq!(of_azure, 19);
    let one = rows("azure.csv").into_iter().find(|row| row["reserved_kind"] == "savings-plan").unwrap();
    assert_eq!(terms(("azure", &one["region"], &one["region"], &one["instance_type"])).unwrap().0, SavingsPlan);
    let plan = rows("gpu-clouds.csv").into_iter().find(|row| row["reserved_kind"] == "3-year-plan").unwrap();
    assert_eq!(terms(("runpod", &plan["region"], &plan["region"], &plan["instance_type"])), None);
}

#[test]
fn list_prices_are_those_of_the_lists() {
    let book = book();
    for (at, usd, source, as_of) in [
        (("aws", "us-east-1", "use1-az6", "g6.xlarge"), "0.8048", "karpenter-aws@2026-07-20", "2026-07-20T00:00:00Z"),
        (("aws", "us-east-1", "use1-az1", "p5.48xlarge"), "55.04", "karpenter-aws@2026-07-20", "2026-07-20T00:00:00Z"),
        (("aws", "us-east-1", "use1-az6", "p4d.24xlarge"), "21.957642", "karpenter-aws@2026-07-20", "2026-07-20T00:00:00Z"),
        (
            ("azure", "eastus", "eastus", "Standard_ND96isr_H100_v5"),
            "98.32",
            "karpenter-azure@2026-06-18",
            "2026-06-18T00:00:00Z",
        ),
        (("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g"), "88.49", "karpenter-gcp@2026-08-03", "2026-08-03T00:00:00Z"),
        (("lambda", "global", "global", "lambda-h100-sxm-on-demand"), "4.29", "tardellirs@2026-05-24", "2026-05-24T00:00:00Z"),
    ] {
        let quote = price(&book, at, CapacityType::OnDemand);
        assert_eq!(quote.price, UsdPerHour::parse_usd(usd).unwrap(), "{at:?}");
        assert_eq!((quote.kind, quote.source.as_ref()), (QuoteKind::List, source), "{at:?}");
        assert_eq!(quote.as_of.map(|at| at.to_string()).as_deref(), Some(as_of), "{at:?}");
    }
}

#[test]
fn dates_are_lower_bounds_or_none() {
    let book = book();
    // A spot quote of a snapshot that is "not before November 2025" counts from the first of that month.
    let spot = price(&book, ("aws", "us-east-1", "use1-az6", "g6.xlarge"), CapacityType::Spot);
    assert_eq!((spot.price, spot.kind), (UsdPerHour(398_800), QuoteKind::Spot));
    assert_eq!(spot.as_of.map(|at| at.to_string()).as_deref(), Some("2025-11-01T00:00:00Z"));
    assert_eq!(spot.source.as_ref(), "skypilot-00148f2@2025-11");
    let undated = price(&book, ("nebius", "eu-north1", "eu-north1", "gpu-h100-sxm_1gpu-16vcpu-200gb"), CapacityType::OnDemand);
    assert_eq!((undated.as_of, undated.source.as_ref()), (None, "skypilot-0082b04@undated"));
}

#[test]
fn what_is_no_price_is_no_price() {
    let book = book();
    for (at, capacity_type, why) in [
        (("aws", "us-east-1", "use1-az1", "p5.48xlarge"), CapacityType::Spot, NoSignal::PinnedAtOnDemand),
        (("aws", "eu-south-2", "eus2-az2", "p5en.48xlarge"), CapacityType::Spot, NoSignal::Floor),
        (("aws", "us-west-2", "usw2-lax1-az1", "g4dn.xlarge"), CapacityType::Spot, NoSignal::Floor),
        (("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g"), CapacityType::OnDemand, NoSignal::ListOnly),
        (("gcp", "us-central1", "us-central1-b", "a4-highgpu-8g"), CapacityType::OnDemand, NoSignal::ListOnly),
    ] {
        let market = market(at.0, at.1, at.2, at.3, capacity_type);
        assert_eq!(book.entry(&market), Some(&Entry::NoSignal(why)), "{market}");
    }
    // What is sold as spot only keeps its spot price.
    let spot = price(&book, ("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g"), CapacityType::Spot);
    assert_eq!(spot.price, UsdPerHour(6_326_193));
    let count = |why| book.entries().filter(|(_, entry)| **entry == Entry::NoSignal(why)).count();
    assert_eq!(count(NoSignal::PinnedAtOnDemand), 45);
    assert_eq!(count(NoSignal::Floor), 18);
    assert_eq!(count(NoSignal::ListOnly), 73);
}

#[test]
fn no_unmarked_quote_stands_at_the_floor() {
    let book = book();
    for (market, entry) in book.entries().filter(|(market, _)| market.capacity_type == CapacityType::Spot) {
        let mut list = market.clone();
        list.capacity_type = CapacityType::OnDemand;
        if let (Entry::Price(spot), Some(Entry::Price(list))) = (entry, book.entry(&list)) {
            assert!((spot.price.0 * 10 - list.price.0).abs() > 500, "{market}");
            assert!(spot.price < list.price, "{market}");
        }
    }
}

#[test]
fn aws_markets_need_a_zone_row() {
    let book = book();
    let unzoned = |region: &str, instance_type: &str| {
        let mut all = book.unzoned();
        all.find(|((cloud, at, what), _)| cloud.as_str() == "aws" && at.as_str() == region && what.as_str() == instance_type)
            .map(|(_, quote)| quote.price)
    };
    assert_eq!(unzoned("af-south-1", "g4dn.12xlarge"), Some(UsdPerHour(5_190_000)));
    assert_eq!(unzoned("us-east-1", "g6.xlarge"), None, "its zones are known");
    assert!(
        book.entries()
            .all(|(market, _)| { market.place.cloud.as_str() != "aws" || market.place.zone.as_str().contains("-az") })
    );
    // A local zone has a price list of its own, which no source tells.
    let local = market("aws", "us-west-2", "usw2-lax1-az1", "g4dn.xlarge", CapacityType::OnDemand);
    assert_eq!(book.entry(&local), None);
}

#[test]
fn gcp_markets_are_the_zones_that_sell_the_type() {
    let book = book();
    let zones = |region: &str, instance_type: &str| -> Vec<&str> {
        let all = book.entries().map(|(market, _)| market).filter(|market| market.capacity_type == CapacityType::OnDemand);
        all.map(|market| &market.place)
            .filter(|place| place.region.as_str() == region && place.instance_type.as_str() == instance_type)
            .map(|place| place.zone.as_str())
            .collect()
    };
    assert_eq!(zones("us-east4", "g2-standard-4"), ["us-east4-a", "us-east4-c"]);
    assert_eq!(zones("us-central1", "a3-highgpu-8g"), ["us-central1-a", "us-central1-b", "us-central1-c"]);
    assert_eq!(zones("us-west3", "n1-standard-4+1xt4"), ["us-west3-b"]);
    assert_eq!(zones("us-central1", "g4-standard-48"), Vec::<&str>::new(), "no source tells G4's zones");
    assert_eq!(book.unzoned().filter(|((cloud, _, _), _)| cloud.as_str() == "gcp").count(), 104);
}

#[test]
fn instance_types_are_what_they_are_made_of() {
    let book = book();
    let p4d = spec(&book, "aws", "p4d.24xlarge");
    assert_eq!((p4d.gpu_model.as_str(), p4d.gpus, p4d.gpu_memory), ("A100", Milli(8000), MiB::from_gib(40)));
    assert_eq!((p4d.vcpus, p4d.memory, p4d.arch), (Some(96), Some(MiB::from_gib(1152)), Arch::Amd64));
    assert_eq!(spec(&book, "aws", "p4de.24xlarge").gpu_memory, MiB::from_gib(80));
    let sixth = spec(&book, "azure", "Standard_NV6ads_A10_v5");
    assert_eq!((sixth.gpus, sixth.advertised_gpus()), (Milli(167), 1));
    assert_eq!(sixth.memory_per_advertised_gpu(), MiB(24 * 1024 * 167 / 1000));
    for (cloud, instance_type, arch) in [
        ("aws", "g5g.xlarge", Arch::Arm64),
        ("lambda", "lambda-gh200-on-demand", Arch::Arm64),
        ("azure", "Standard_ND128isr_NDR_GB200_v6", Arch::Arm64),
        ("verda", "verda-gb300-sxm-on-demand", Arch::Arm64),
        ("aws", "g6.xlarge", Arch::Amd64),
    ] {
        assert_eq!(spec(&book, cloud, instance_type).arch, arch, "{instance_type}");
    }
    let coreweave = spec(&book, "coreweave", "coreweave-h100-sxm-classic");
    assert_eq!((coreweave.vcpus, coreweave.memory), (None, None));
    assert_eq!(spec(&book, "oci", "BM.GPU.H100.8").vcpus, Some(224), "112 OCPUs are 224 virtual CPUs");
}

#[test]
fn aws_types_have_the_pods_disks_and_interfaces_of_their_network() {
    let book = book();
    let told = |instance_type: &str| {
        let spec = spec(&book, "aws", instance_type);
        let network = spec.network.unwrap_or_else(|| panic!("{instance_type}"));
        (
            network.pods,
            network.cards,
            network.efa_interfaces,
            spec.local_disk.map(|disk| (disk.0 << 20).div_ceil(1_000_000_000)),
        )
    };
    for (instance_type, expected) in [
        ("g4dn.xlarge", (29, 1, 0, Some(125))),
        ("g5.xlarge", (58, 1, 0, Some(250))),
        ("g5g.xlarge", (58, 1, 0, None)),
        ("g6.xlarge", (58, 1, 0, Some(250))),
        ("g6.12xlarge", (234, 1, 1, Some(3760))),
        ("g5.48xlarge", (345, 1, 1, Some(7600))),
        ("p4d.24xlarge", (737, 4, 4, Some(8000))),
        ("p5.4xlarge", (118, 1, 1, Some(3800))),
        ("p5.48xlarge", (100, 32, 32, Some(30400))),
        ("p5en.48xlarge", (198, 16, 16, Some(30400))),
        ("p6-b200.48xlarge", (198, 8, 8, Some(30400))),
        // One of its cards has no EFA.
        ("p6-b300.48xlarge", (198, 17, 16, Some(30400))),
    ] {
        assert_eq!(told(instance_type), expected, "{instance_type}");
    }
    let of_aws = book.specs().filter(|spec| spec.cloud.as_str() == "aws");
    let without: Vec<_> = of_aws.filter(|spec| spec.network.is_none()).map(|spec| spec.instance_type.as_str()).collect();
    assert_eq!(without, [""; 0], "types that are sold and have no line");
    let sold: BTreeSet<_> = rows("aws.csv").into_iter().map(|row| row["instance_type"].clone()).collect();
    assert!(rows("aws-types.csv").iter().all(|row| sold.contains(&row["instance_type"])), "of what aws.csv sells");
    assert!(book.specs().all(|spec| spec.cloud.as_str() == "aws" || (spec.network, spec.local_disk) == (None, None)));
}

#[test]
fn only_the_types_without_a_gpu_count_have_no_spec() {
    let book = book();
    let without: BTreeSet<&str> = book
        .entries()
        .map(|(market, _)| &market.place)
        .filter(|place| book.spec(&place.cloud, &place.instance_type).is_none())
        .map(|place| place.instance_type.as_str())
        .collect();
    assert_eq!(without.len(), 9);
    assert!(without.iter().all(|name| name.contains("RTXPRO6000BSE_v6")), "{without:?}");
    assert_eq!(book.specs().count(), 227);
}

#[test]
fn gpu_models_have_specs_or_are_named_as_gaps() {
    let book = book();
    assert_eq!(book.gpu(&GpuModel::new("A100").unwrap()).len(), 2, "40 and 80 GiB");
    let l4 = &book.gpu(&GpuModel::new("L4").unwrap())[0];
    assert_eq!(
        (l4.memory, l4.bandwidth_gb_s, l4.fp16_gflops, l4.fp8_gflops),
        (MiB::from_gib(24), Some(300), Some(121_000), Some(242_000))
    );
    assert_eq!((l4.names.product.as_deref(), l4.names.nvml_mib, l4.mig_profiles.len()), (Some("NVIDIA-L4"), Some(23_034), 0));
    for gpu in book.gpu_models().flat_map(|model| book.gpu(model)) {
        // ECC takes a sixteenth of GDDR memory, and B300 is sold by less than it has.
        let share = gpu.names.nvml_mib.map(|mib| mib * 1000 / gpu.memory.0);
        assert!(share.is_none_or(|share| (935..=1005).contains(&share)), "{} {share:?}", gpu.model);
    }
    let p100 = &book.gpu(&GpuModel::new("P100").unwrap())[0];
    assert_eq!((p100.fp16_gflops, p100.fp8_gflops), (Some(18_700), None));
    let has = |model: &str| GpuFeature::ALL.map(|feature| book.gpu(&GpuModel::new(model).unwrap())[0].has(feature));
    let (yes, no) = (Some(true), Some(false));
    assert_eq!((has("L4"), has("A100"), has("H100")), ([no, yes, no], [yes, no, yes], [yes; 3]));
    assert_eq!(has("B300"), [yes; 3], "its FP8 figure is unknown, that it has FP8 is not");
    assert_eq!(book.gpu_models().map(|model| book.gpu(model).len()).sum::<usize>(), 30);
    let gaps = SOURCES.split("## Gaps").nth(1).expect("SOURCES.md has a section on gaps");
    for spec in book.specs() {
        let sizes = book.gpu(&spec.gpu_model);
        let named = format!("{} {} GiB", spec.gpu_model, spec.gpu_memory.0 / 1024);
        assert!(sizes.iter().any(|size| size.memory == spec.gpu_memory) || gaps.contains(&named), "{named}");
    }
}

/// Every GPU splits into as many of its smallest instance as its line says, and the MIG manager's default configuration has these numbers.
#[test]
fn mig_instances_are_as_many_as_the_lines_say() {
    let book = book();
    for gpu in book.gpu_models().flat_map(|model| book.gpu(model)).filter(|gpu| !gpu.mig_profiles.is_empty()) {
        let geometry = Geometry::of(gpu).unwrap();
        let smallest = geometry.profiles().next().unwrap();
        assert_eq!(geometry.most(smallest).ok(), gpu.mig_max_instances, "{} {}", gpu.model, gpu.memory.0);
    }
    for (model, instances) in [
        ("H100NVL", "1g.12gb=7 1g.24gb=4 2g.24gb=3 3g.47gb=2 4g.47gb=1 7g.94gb=1"),
        ("GH200", "1g.12gb=7 1g.24gb=4 2g.24gb=3 3g.48gb=2 4g.48gb=1 7g.96gb=1"),
        ("B200", "1g.23gb=7 1g.45gb=4 2g.45gb=3 3g.90gb=2 4g.90gb=1 7g.180gb=1"),
        ("GB200", "1g.23gb=7 1g.47gb=4 2g.47gb=3 3g.93gb=2 4g.93gb=1 7g.186gb=1"),
        ("B300", "1g.34gb=7 1g.67gb=4 2g.67gb=3 3g.135gb=2 4g.135gb=1 7g.269gb=1"),
    ] {
        let geometry = Geometry::of(&book.gpu(&GpuModel::new(model).unwrap())[0]).unwrap();
        let told: Vec<_> = geometry.profiles().map(|p| format!("{p}={}", geometry.most(p).unwrap())).collect();
        assert_eq!(told.join(" "), instances, "{model}");
    }
    let unknown = &book.gpu(&GpuModel::new("RTXPRO4500").unwrap())[0];
    assert_eq!(Geometry::of(unknown), Err(Misfit::Unknown), "it can be split, and nobody tells into what");
}

#[test]
fn reclaims_are_the_advisors() {
    let book = book();
    assert_eq!(book.reclaims(&place("aws", "us-east-1", "use1-az6", "g6.xlarge")), Some(Milli(250)));
    assert_eq!(book.reclaims(&place("aws", "us-east-1", "use1-az1", "g5g.xlarge")), Some(Milli(25)));
    assert_eq!(book.reclaims(&place("gcp", "us-central1", "us-central1-a", "g2-standard-4")), None);
    let places: BTreeSet<_> = book.entries().map(|(market, _)| &market.place).collect();
    assert_eq!(places.into_iter().filter(|place| book.reclaims(place).is_some()).count(), 727);
}

#[test]
fn counts_are_those_of_the_tables() {
    let counts = |name: &str| {
        rows(name).into_iter().fold(BTreeMap::<String, usize>::new(), |mut counts, row| {
            *counts.entry(row["cloud"].clone()).or_default() += 1;
            counts
        })
    };
    let clouds: BTreeMap<String, usize> = OFFERS.into_iter().flat_map(counts).collect();
    let clouds: Vec<_> = clouds.iter().map(|(cloud, n)| (cloud.as_str(), *n)).collect();
    assert_eq!(
        clouds,
        [
            ("aws", 1483),
            ("azure", 870),
            ("coreweave", 9),
            ("digitalocean", 3),
            ("gcp", 506),
            ("hyperstack", 10),
            ("lambda", 9),
            ("nebius", 21),
            ("oci", 6),
            ("runpod", 12),
            ("verda", 11),
            ("vultr", 9),
        ]
    );
    assert_eq!(rows("aws.csv").iter().filter(|row| row["zone"].is_empty()).count(), 706);
    let lines = ["gcp-zones.csv", "aws-spot-advisor.csv", "aws-types.csv"].map(|name| rows(name).len());
    assert_eq!(lines, [697, 614, 68]);
    let book = book();
    assert_eq!((book.entries().count(), book.unzoned().count()), (4315, 504));
}

#[test]
fn every_figure_names_a_source_that_is_described() {
    let book = book();
    let quotes = book.entries().filter_map(|(_, entry)| match entry {
        Entry::Price(quote) => Some(quote),
        Entry::NoSignal(_) => None,
    });
    for quote in quotes.chain(book.unzoned().map(|(_, quote)| quote)) {
        let (source, date) = quote.source.split_once('@').expect("source@date");
        assert!(!source.is_empty() && !date.is_empty(), "{quote:?}");
        assert!(quote.price > UsdPerHour::ZERO);
    }
    let columns =
        OFFERS.into_iter().chain(["gpu-specs.csv", "gcp-zones.csv", "aws-spot-advisor.csv", "aws-types.csv", "egress.csv"]);
    let sources: BTreeSet<String> = columns
        .flat_map(rows)
        .flat_map(|row| row.into_iter().filter(|(column, _)| column == "source" || column.ends_with("_source")))
        .flat_map(|(_, cell)| cell.split('+').map(str::to_owned).collect::<Vec<_>>())
        .filter(|source| !source.is_empty())
        .collect();
    for source in sources {
        assert!(SOURCES.contains(&format!("`{source}`")), "{source} is not described in SOURCES.md");
    }
}

#[test]
fn the_tables_on_disk_are_the_built_in_ones() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables");
    assert_eq!(load_dir(&dir, jiff::Timestamp::MAX, |path| std::fs::read(path)), embedded());
}

/// A start or a dry run waits for this parse. The best of three, so that a busy machine does not fail it.
#[test]
fn parsing_every_table_takes_less_than_a_second() {
    let took = |_| {
        let start = Instant::now();
        let _ = book();
        start.elapsed()
    };
    assert!((0..3).map(took).min().unwrap() < Duration::from_secs(1));
}
