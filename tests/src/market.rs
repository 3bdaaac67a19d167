//! A small market: a few instance types in two zones of one region, with round prices.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::market::offer::{Arch, CapacityType, GpuNames, GpuSpec, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_service::clock::Clock;
use stoker_service::serve::{Options, PolicySource};
use stoker_sim::world::{BootConfig, MarketConfig, MarketMatch, WorldConfig};

/// When every test begins.
pub fn start() -> Timestamp {
    Timestamp::from_second(1_793_606_400).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// One-GPU types from the cheapest to the dearest, and one with four GPUs: name, GPU model, its memory in GiB, GPUs, vCPUs, memory in
/// GiB, dollars an hour in thousandths on demand. A spot node costs a third.
const TYPES: [(&str, &str, u64, u32, u32, u64, i64); 4] = [
    ("g6.xlarge", "L4", 24, 1, 4, 16, 900),
    ("g5.xlarge", "A10G", 24, 1, 4, 16, 1_200),
    ("g6e.xlarge", "L40S", 48, 1, 4, 32, 1_800),
    ("g6.12xlarge", "L4", 24, 4, 48, 192, 4_500),
];

/// The zones by id; this account calls them `us-east-1a` and `us-east-1b`.
const ZONES: [&str; 2] = ["use1-az1", "use1-az2"];

/// A service by itself that sells from the small market by a policy, with its state in `dir`.
pub fn options(policy: String, dir: &Path) -> Options {
    let policy = PolicySource::Text { name: "the test's policy".to_owned(), text: policy };
    Options::loopback(Clock::system(), book(), policy, dir.join("state"))
}

/// The prices of the small market.
pub fn book() -> Arc<PriceBook> {
    static BOOK: OnceLock<Arc<PriceBook>> = OnceLock::new();
    Arc::clone(BOOK.get_or_init(|| Arc::new(build())))
}

fn build() -> PriceBook {
    let mut book = PriceBook::new();
    for (name, model, gpu_gib, gpus, vcpus, gib, price) in TYPES {
        let gpu_model = id::<GpuModel>(model);
        if book.gpu(&gpu_model).is_empty() {
            book.insert_gpu(GpuSpec {
                model: gpu_model.clone(),
                memory: MiB::from_gib(gpu_gib),
                bandwidth_gb_s: None,
                fp16_gflops: None,
                fp8_gflops: None,
                compute_capability: None,
                mig_max_instances: None,
                mig_profiles: Vec::new(),
                nvlink_gb_s: None,
                names: GpuNames::default(),
            });
        }
        book.insert_spec(InstanceSpec {
            cloud: id::<Cloud>("aws"),
            instance_type: id::<InstanceType>(name),
            gpu_model,
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(gpu_gib),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(gib)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for zone in ZONES {
            for (capacity_type, kind, share) in
                [(CapacityType::OnDemand, QuoteKind::List, 1), (CapacityType::Spot, QuoteKind::Spot, 3)]
            {
                let quote = Quote {
                    price: UsdPerHour(price * 1000 / share),
                    kind,
                    as_of: start().checked_sub(SignedDuration::from_hours(24)).ok(),
                    source: Arc::from("a test's table"),
                };
                book.insert(market(name, zone, capacity_type), Entry::Price(quote));
            }
        }
    }
    book
}

/// A market of that book; the zone by its id.
pub fn market(instance_type: &str, zone: &str, capacity_type: CapacityType) -> Market {
    let place = Place {
        cloud: id("aws"),
        region: id::<Region>("us-east-1"),
        zone: id::<ZoneId>(zone),
        instance_type: id(instance_type),
    };
    Market { place, capacity_type }
}

#[expect(clippy::expect_used, reason = "only literals of tests come here")]
fn id<T: TryFrom<String>>(text: &str) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(text.to_owned()).expect("a literal that is an id")
}

/// A world in which nothing happens by chance: each boot takes 150 s, each end 30 s, nobody is reclaimed, every call is answered at once.
pub fn calm() -> WorldConfig {
    let boot = BootConfig { median_seconds: 150, sigma: 0.0, clouds: [].into() };
    let mut world = WorldConfig { boot, ..WorldConfig::default() };
    world.reclaims.per_hour = 0.0;
    world.spells.spot_share = 0.0;
    world.api.latency_ms.min = 0;
    world.api.latency_ms.max = 0;
    world
}

/// The markets of an instance type.
pub fn of_type(instance_type: &str) -> MarketMatch {
    MarketMatch { instance_type: Some(instance_type.to_owned()), ..MarketMatch::default() }
}

/// The markets of an instance type and a capacity type.
pub fn of_kind(instance_type: &str, capacity_type: CapacityType) -> MarketMatch {
    MarketMatch { capacity_type: Some(capacity_type), ..of_type(instance_type) }
}

/// So many machines of these markets can exist at a time.
pub fn stock(market: MarketMatch, machines: u32) -> MarketConfig {
    MarketConfig { market, stock: Some(machines), ..MarketConfig::default() }
}
