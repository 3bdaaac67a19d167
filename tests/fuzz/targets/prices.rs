//! Price tables: refused with faults that name the table, or a book whose prices are above zero and
//! that stays the same when it is written and read again.
//!
//! An input is tables one after the other, each after a line `== NAME`; tables that it lacks are
//! small right ones.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stoker_core::market::price::{Entry, PriceBook};

/// Dates after it, 2030-01-01, are faults.
pub(crate) const LATEST: Timestamp = Timestamp::constant(1_893_456_000, 0);

/// Each table, as far as the rows of the others need it.
pub(crate) const TABLES: [(&str, &str); 7] = [
    (
        "aws.csv",
        "cloud,region,zone,instance_type,arch,gpu_model,gpu_count,gpu_memory_gib,vcpu,memory_gib,on_demand_usd_hour,\
         on_demand_source,on_demand_date,spot_usd_hour,spot_source,spot_date,reserved_1y_usd_hour,reserved_3y_usd_hour,\
         reserved_kind,reserved_source,reserved_date,note\n\
         aws,us-east-1,use1-az1,g6.xlarge,amd64,L4,1,24,4,16,0.8048,ec2shop,2025-04-04,0.31,ec2shop,2025-04-04,0.5,0.35,\
         standard-ri-no-upfront,ec2shop,2025-04-04,\n",
    ),
    (
        stoker_pricing::GPU_SPECS,
        "gpu_model,memory_gib,bandwidth_gb_s,fp16_dense_tflops,fp8_dense_tflops,compute_capability,mig_max_instances,\
         mig_profiles,nvlink_gb_s,product_label,nvml_mib,gke_accelerators,karpenter_aws_name,aws_reported_mib,memory_source,\
         performance_source,mig_source,label_source,note\n\
         L4,24,300,121,242,8.9,0,,0,NVIDIA-L4,,nvidia-l4,l4,22888,aws-api,nv-datasheet-recalled,,vantage,\n",
    ),
    (stoker_pricing::GCP_ZONES, "machine_or_accelerator,zone,source,date\n"),
    (
        stoker_pricing::AWS_SPOT_ADVISOR,
        "region,instance_type,bucket,interruption_pct_month,savings_pct,source,date\n\
         us-east-1,g6.xlarge,<5,2.5,61,aws-spot-advisor,2025-06-28\n",
    ),
    (
        stoker_pricing::AWS_TYPES,
        "instance_type,pods,local_disk_gb,efa_interfaces,network_cards,source,date\n\
         g6.xlarge,58,250,,1,moto-5.2.5,2026-10-27\n",
    ),
    (stoker_pricing::REGIONS, "cloud,region,continent,place\naws,us-east-1,north-america,Virginia\n"),
    (stoker_pricing::EGRESS, "cloud,crosses,from,to,usd_gib,source,date\naws,zone,,,0.01,skyplane-0513671,2023-04-27\n"),
];

pub(super) fn run(data: &[u8]) {
    let mut tables: BTreeMap<&str, &[u8]> = TABLES.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    for (number, section) in split(data).into_iter().enumerate() {
        let (name, body) = match section.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&section[..end], &section[end + 1..]),
            None => (section, &[][..]),
        };
        // What stands before the first mark is a table of offers.
        let name = if number == 0 { "aws.csv" } else { std::str::from_utf8(name).unwrap_or("other.csv") };
        tables.insert(name, if number == 0 { section } else { body });
    }
    if data.starts_with(b"== ") {
        tables.insert("aws.csv", TABLES[0].1.as_bytes());
    }
    match stoker_pricing::load(tables.iter().map(|(name, body)| (*name, *body)), LATEST) {
        Ok(book) => accepted(&book),
        Err(faults) => {
            assert!(!faults.faults().is_empty(), "refused without a fault");
            for fault in faults.faults() {
                let place = fault.file.as_str();
                assert!(tables.contains_key(place) || place == "the set of tables", "{fault} names no table");
                assert!(!fault.to_string().is_empty());
            }
        }
    }
}

/// The pieces between lines that begin with `== `, without that.
fn split(data: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for at in 0..data.len() {
        let begins = at == 0 || data[at - 1] == b'\n';
        if begins && data[at..].starts_with(b"== ") {
            pieces.push(&data[from.min(at)..at]);
            from = at + 3;
        }
    }
    pieces.push(&data[from.min(data.len())..]);
    pieces
}

fn accepted(book: &PriceBook) {
    for (market, entry) in book.entries() {
        if let Entry::Price(quote) = entry {
            assert!(quote.price.0 > 0, "{market:?} costs {:?}", quote.price);
        }
    }
    for spec in book.specs() {
        assert!(spec.gpus.0 > 0, "{spec:?}");
    }
    let written = serde_json::to_string(book).expect("a book can be written");
    let again: PriceBook = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(again, *book, "another book after it was written and read");
}
