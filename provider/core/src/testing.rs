//! Small catalogues for tests: a policy as it is written, and what there is to buy, each row by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, SupplierName, ZoneId};
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::facts::supply::MarketFacts;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::policy::rules::commitment::Commitment;
use crate::policy::{Policy, RawPolicy};

/// Type, GPU model, GPUs, vCPUs.
pub(crate) type Kind = (&'static str, &'static str, u32, u32);

/// An offer on AWS in us-east-1: of which kind, in which zone, bought how, at how many micro-dollars an hour.
pub(crate) type Row = (Kind, &'static str, CapacityType, i64);

/// One NVIDIA L4, as AWS sells it.
pub(crate) const L4: Kind = ("g6.xlarge", "L4", 1, 4);

pub(crate) fn now() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

/// The catalogue of a policy with one pool `pool` (its fields beside name and place) and these quotas, over these offers.
pub(crate) fn catalogue(pool: &Value, quotas: &Value, rows: &[Row]) -> Catalogue {
    let mut pool = pool.clone();
    pool["name"] = json!("pool");
    pool["where"] = json!({ "clouds": ["aws"], "regions": ["us-east-1"] });
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "pools": [pool], "quotas": quotas,
    }))
    .unwrap();
    catalogue_of(Policy::try_from_raw(&raw).unwrap(), rows)
}

/// The commitments of a policy, as they are written.
pub(crate) fn commitments(raw: &Value) -> Vec<Commitment> {
    let pool = json!({ "name": "pool", "workload": "training", "gpu": { "models": ["L4"] }, "limits": { "maxNodes": 1 },
                       "where": { "clouds": ["aws"], "regions": ["us-east-1"] } });
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "pools": [pool], "commitments": raw,
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap().commitments
}

/// The catalogue of a policy over these offers.
pub(crate) fn catalogue_of(policy: Policy, rows: &[Row]) -> Catalogue {
    let aws = Cloud::new("aws").unwrap();
    let mut book = PriceBook::new();
    for ((instance_type, model, gpus, vcpus), zone, capacity_type, micros) in rows {
        let instance_type = InstanceType::new(*instance_type).unwrap();
        book.insert_spec(InstanceSpec {
            cloud: aws.clone(),
            instance_type: instance_type.clone(),
            gpu_model: GpuModel::new(*model).unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(*vcpus),
            memory: Some(MiB::from_gib(64)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let (region, zone) = (Region::new("us-east-1").unwrap(), ZoneId::new(*zone).unwrap());
        let place = Place { cloud: aws.clone(), region, zone, instance_type };
        let price = UsdPerHour(*micros);
        let quote = Quote { price, kind: QuoteKind::List, as_of: Some(now()), source: Arc::from("test") };
        book.insert(Market { place, capacity_type: *capacity_type }, Entry::Price(quote));
    }
    let facts = MarketFacts { clouds: [aws].into(), ..MarketFacts::default() };
    Catalogue::derive(&Arc::new(policy), &book, &BTreeMap::from([(SupplierName::new("test").unwrap(), facts)]))
}

/// A generator of numbers below `most`, the same in every run.
pub(crate) struct Lots(pub(crate) u64);

impl Lots {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// The same as a number of 32 bits.
    pub(crate) fn upto(&mut self, most: u32) -> u32 {
        u32::try_from(self.below(u64::from(most) + 1)).unwrap()
    }
}
