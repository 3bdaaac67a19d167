//! What the loader says of broken tables: where, which cell, which value, and the cure.

use std::path::Path;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, InstanceType};
use stoker_core::base::units::{Milli, UsdPerHour};
use stoker_core::market::offer::{Arch, CapacityType};
use stoker_core::market::price::{Entry, PriceBook, QuoteKind};

use super::{market, table};
use crate::{EMBEDDED, TableFaults, load, load_dir};

const HEADER: &str = "cloud,region,zone,instance_type,arch,gpu_model,gpu_count,gpu_memory_gib,vcpu,memory_gib,\
on_demand_usd_hour,on_demand_source,on_demand_date,spot_usd_hour,spot_source,spot_date,\
reserved_1y_usd_hour,reserved_3y_usd_hour,reserved_kind,reserved_source,reserved_date,note";

/// A whole and right line.
const LINE: &str = "ours,here,,box-1,amd64,L4,1,24,4,16,0.8048,list,2026-07,0.4,desk,2026-07-02,,,,,,";

/// Loads one table of offers beside otherwise empty ones.
fn offers(lines: &[&str]) -> Result<PriceBook, TableFaults> {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    load_with(&[("t/ours.csv", &text)])
}

fn load_with(tables: &[(&str, &str)]) -> Result<PriceBook, TableFaults> {
    let names = ["gpu-specs.csv", "gcp-zones.csv", "aws-spot-advisor.csv", "aws-types.csv", "regions.csv", "egress.csv"];
    let headers = names.map(|name| {
        let header = table(name).lines().next().unwrap();
        (format!("t/{name}"), header)
    });
    let given = tables.iter().map(|(name, text)| (*name, text.as_bytes()));
    let missing = headers.iter().filter(|(name, _)| tables.iter().all(|(given, _)| given != name));
    load(missing.map(|(name, text)| (name.as_str(), text.as_bytes())).chain(given), "2026-11-02T00:00:00Z".parse().unwrap())
}

/// The faults of one line with one cell replaced.
fn faults_with(column: &str, value: &str) -> String {
    let at = HEADER.split(',').position(|name| name == column).unwrap();
    let mut cells: Vec<&str> = LINE.split(',').collect();
    cells[at] = value;
    said(offers(&[&cells.join(",")]))
}

fn said(loaded: Result<PriceBook, TableFaults>) -> String {
    loaded.expect_err("a fault").to_string()
}

#[test]
fn a_right_line_is_a_market() {
    let book = offers(&[LINE, LINE]).unwrap_or_else(|faults| panic!("{faults}"));
    let on_demand = market("ours", "here", "here", "box-1", CapacityType::OnDemand);
    let Some(Entry::Price(quote)) = book.entry(&on_demand) else { panic!("no price") };
    assert_eq!((quote.price, quote.kind, quote.source.as_ref()), (UsdPerHour(804_800), QuoteKind::List, "list@2026-07"));
    let spec = book.spec(&Cloud::new("ours").unwrap(), &InstanceType::new("box-1").unwrap()).unwrap();
    assert_eq!((spec.gpus, spec.arch), (Milli(1000), Arch::Amd64));
}

/// Such a figure would never grow old.
#[test]
fn a_date_in_the_future_is_a_fault_of_its_cell() {
    let told = faults_with("on_demand_date", "2099-01-01");
    assert!(told.starts_with("t/ours.csv:2: on_demand_date \"2099-01-01\" is in the future: write the day on which"), "{told}");
    assert!(faults_with("spot_date", "2026-12").contains("spot_date \"2026-12\" is in the future"));
    offers(&[&LINE.replace("2026-07-02", "2026-11-02")]).unwrap();
}

#[test]
fn a_fault_names_file_line_column_value_and_cure() {
    let mut lines: Vec<&str> = table("aws.csv").lines().collect();
    let mut cells: Vec<&str> = lines[16].split(',').collect();
    cells[10] = "\"1,204\"";
    let broken = cells.join(",");
    lines[16] = &broken;
    let text = lines.join("\n");
    let tables =
        EMBEDDED.map(|(name, built_in)| (name, if name.ends_with("/aws.csv") { text.as_bytes() } else { built_in.as_bytes() }));
    assert_eq!(
        said(load(tables, Timestamp::MAX)),
        "pricing/tables/aws.csv:17: on_demand_usd_hour \"1,204\" is not a decimal number of dollars: write 1.204"
    );
}

#[test]
fn each_cell_has_its_fault() {
    for (column, value, expected) in [
        ("cloud", "", "cloud is empty: write the name as the cloud does"),
        ("arch", "x86", "arch \"x86\" is not a known value: write amd64 or arm64"),
        (
            "gpu_count",
            "1.5",
            "gpu_count \"1.5\" is not a whole number of GPUs, nor a fraction of one: write e.g. 8 or 0.166667",
        ),
        ("gpu_count", "0", "gpu_count \"0\" is not a whole number of GPUs, nor a fraction of one: write e.g. 8 or 0.166667"),
        ("gpu_memory_gib", "", "gpu_memory_gib is empty: write the GiB of one physical GPU"),
        ("vcpu", "-4", "vcpu \"-4\" is not a whole number of virtual CPUs"),
        ("memory_gib", "16GB", "memory_gib \"16GB\" is not a decimal number of GiB, e.g. 16 or 0.5"),
        ("on_demand_usd_hour", "0", "on_demand_usd_hour \"0\" is not a price: leave the cell empty where the price is unknown"),
        (
            "on_demand_usd_hour",
            "-1",
            "on_demand_usd_hour -1 is negative: write dollars an hour, e.g. 1.204, or leave it empty where no price is known",
        ),
        ("on_demand_usd_hour", "$0.8", "on_demand_usd_hour \"$0.8\" is not a decimal number of dollars: write 0.8"),
        ("on_demand_source", "", "on_demand_source is empty: name the source of the price"),
        (
            "on_demand_date",
            "07/2026",
            "on_demand_date \"07/2026\" is not a date: write 2026-08-03, or 2026-08 where only the month is known, or leave it empty",
        ),
        ("spot_usd_hour", "", "spot_source \"desk\" is given, but spot_usd_hour is empty: write the price or clear this cell"),
        (
            "spot_usd_hour",
            "0.8048",
            "spot_usd_hour $0.8048 equals the on-demand price, which means no spot market: write pinned-at-on-demand in note",
        ),
        (
            "spot_usd_hour",
            "64",
            "spot_usd_hour $64.0000 is above on-demand, $0.8048: one of them is another product's price (GCP: flex-start); correct it",
        ),
        (
            "reserved_3y_usd_hour",
            "0.3",
            "reserved_kind is empty: say what kind of reservation this is, and name the source of its price",
        ),
        (
            "note",
            "cheap",
            "note \"cheap\" is not a known value: write pinned-at-on-demand or floor (not both), list-only, or nothing",
        ),
        (
            "note",
            "floor",
            "note \"floor\" does not fit spot $0.4000 and on-demand $0.8048: clear the note or correct the prices",
        ),
    ] {
        let said = faults_with(column, value);
        assert!(said.lines().any(|line| line == format!("t/ours.csv:2: {expected}")), "{column}={value}: {said}");
    }
}

#[test]
fn a_zone_name_is_no_aws_zone() {
    let line = LINE.replacen("ours,here,", "aws,us-east-1,us-east-1a", 1);
    let expected = "t/ours.csv:2: zone \"us-east-1a\" is a zone name, which means another zone in each account: write the \
                    zone id, e.g. use1-az6";
    assert_eq!(said(offers(&[&line])), expected);
}

#[test]
fn all_faults_are_told_at_once() {
    let bad = LINE.replace("0.8048", "free").replace("amd64", "x86").replace("2026-07-02", "soon");
    let faults = offers(&[&bad, LINE, &bad]).expect_err("faults");
    assert_eq!(faults.faults().len(), 6);
    assert_eq!(faults.faults().iter().map(|fault| fault.line).collect::<Vec<_>>(), [2, 2, 2, 4, 4, 4].map(Some));
    let many = vec![bad.as_str(); 1000];
    let faults = offers(&many).expect_err("faults");
    assert_eq!(faults.faults().len(), 3000);
    assert!(faults.to_string().ends_with("\nand 2950 more errors"));
}

#[test]
fn lines_that_differ_on_one_thing_are_faults() {
    let dearer = LINE.replace("0.8048", "0.9");
    assert_eq!(
        said(offers(&[LINE, &dearer])),
        "t/ours.csv:3: contradicts t/ours.csv:2, which has the same cloud, region, zone and instance_type: keep one of them"
    );
    let elsewhere = LINE.replacen("here", "there", 1).replacen(",16,", ",32,", 1);
    assert_eq!(
        said(offers(&[LINE, &elsewhere])),
        "t/ours.csv:3: gives box-1 other GPUs, CPUs or memory than t/ours.csv:2: an instance type is the same everywhere; \
         correct one of them"
    );
    let text = format!("{HEADER}\n{LINE}\n");
    let other = format!("{HEADER}\n{dearer}\n");
    let both = said(load_with(&[("t/a.csv", &text), ("t/b.csv", &other)]));
    assert!(both.starts_with("t/b.csv:2: contradicts t/a.csv:2"), "{both}");
    let header = table("aws-types.csv").lines().next().unwrap();
    let types = format!("{header}\ng6.xlarge,58,250,,1,x,\ng6.xlarge,29,250,,1,x,\n");
    assert_eq!(
        said(load_with(&[("t/a.csv", &text), ("t/aws-types.csv", &types)])),
        "t/aws-types.csv:3: contradicts t/aws-types.csv:2, which has the same instance_type: keep one of them"
    );
}

#[test]
fn headers_and_lines_are_checked() {
    let text = format!("{}\n{LINE}\n", HEADER.replacen("region", "regoin", 1));
    assert_eq!(
        said(load_with(&[("t/ours.csv", &text)])),
        "t/ours.csv:1: regoin is not a column of this table: correct its spelling or remove it\nt/ours.csv:1: region is \
         missing in the header: add the column (its cells may be empty where the figure is unknown)"
    );
    let said_of = |text: &str| said(load_with(&[("t/ours.csv", text)]));
    assert!(said_of(&format!("{HEADER},note\n")).contains("note is in the header twice: remove one"));
    assert!(said_of(&format!("{HEADER}\n{LINE},extra\n")).contains("t/ours.csv:2: has 23 cells where the header has 22"));
    let swallowed = format!("{HEADER}\n{}\"{}\n", LINE, "x".repeat(2000));
    assert!(said_of(&swallowed).contains("t/ours.csv:2: note has "), "{}", said_of(&swallowed));
}

#[test]
fn other_tables_are_checked_too() {
    let line = |name: &str, line: &str| format!("{}\n{line}\n", table(name).lines().next().unwrap());
    let ours = format!("{HEADER}\n{LINE}\n");
    for (name, text, expected) in [
        (
            "t/gcp-zones.csv",
            line("gcp-zones.csv", "g2-standard-4,uscentral1,x,"),
            "zone \"uscentral1\" is not a GCP zone: write the region and the zone's letter, e.g. us-central1-a",
        ),
        (
            "t/gcp-zones.csv",
            line("gcp-zones.csv", "g2-standard-4,us-central1-a,,"),
            "source is empty: name the source that lists the zone",
        ),
        (
            "t/aws-spot-advisor.csv",
            line("aws-spot-advisor.csv", "us-east-1,g6.xlarge,<5,250,50,x,"),
            "interruption_pct_month \"250\" is not a percentage from 0 to 100, e.g. 2.5",
        ),
        (
            "t/aws-types.csv",
            line("aws-types.csv", "g6.xlarge,,250,,1,x,"),
            "pods is empty: write how many pods its network has addresses for, or remove the line",
        ),
        (
            "t/aws-types.csv",
            line("aws-types.csv", "g6.xlarge,58,0,,1,x,"),
            "local_disk_gb \"0\" is not a number of GB above 0: leave it empty where there is no local disk",
        ),
        (
            "t/aws-types.csv",
            line("aws-types.csv", "g6.xlarge,58,250,none,1,x,"),
            "efa_interfaces \"none\" is not a number of interfaces above 0: leave it empty where there is none",
        ),
        (
            "t/regions.csv",
            line("regions.csv", "aws,us-east-1,america,Virginia"),
            "continent \"america\" is not a known value: write africa, asia, europe, middle-east, north-america, oceania or \
             south-america",
        ),
        (
            "t/egress.csv",
            line("egress.csv", "aws,region,,,-0.02,x,"),
            "usd_gib -0.02 is negative: write dollars per GiB, e.g. 0.02, or remove the line where no price is known",
        ),
        (
            "t/egress.csv",
            line("egress.csv", "aws,region,,,20,x,"),
            "usd_gib \"20\" is not a price of one GiB, which is below a dollar: write e.g. 0.02",
        ),
        (
            "t/egress.csv",
            line("egress.csv", "aws,region,us-east1,europe,0.02,x,"),
            "from \"us-east1\" is not a region of aws in regions.csv: correct its spelling, or add it there",
        ),
        (
            "t/egress.csv",
            line("egress.csv", "aws,internet,,us-east1,0.09,x,"),
            "to \"us-east1\" is not a known value: write a continent, or nothing",
        ),
        (
            "t/egress.csv",
            line("egress.csv", "aws,zone,,europe,0.02,x,"),
            "to \"europe\" is not a known value: write nothing: zones are of one region",
        ),
        (
            "t/gpu-specs.csv",
            line("gpu-specs.csv", "L4,24,300,121,242,8.9,0,1g.5gb,0,,,,,,x,x,,,"),
            "mig_profiles \"1g.5gb\" is given, but mig_max_instances is 0: write how many instances it can be split into, or \
             clear this cell",
        ),
        (
            "t/gpu-specs.csv",
            line("gpu-specs.csv", "A30,24,933,165,,8.0,4,1g.6gb 2-12,0,,,,,,x,x,,,"),
            "mig_profiles \"2-12\" is not MIG profiles with spaces between, e.g. 1g.10gb",
        ),
        (
            "t/gpu-specs.csv",
            line("gpu-specs.csv", "L4,24,300,121,242,Ada,0,,0,,,,,,x,x,,,"),
            "compute_capability \"Ada\" is not a compute capability, e.g. 8.9",
        ),
        (
            "t/gpu-specs.csv",
            line("gpu-specs.csv", "L4,24,300.5,121,242,8.9,0,,0,,,,,,x,x,,,"),
            "bandwidth_gb_s \"300.5\" is not a whole number of GB/s, e.g. 900",
        ),
    ] {
        assert_eq!(said(load_with(&[("t/ours.csv", &ours), (name, &text)])), format!("{name}:2: {expected}"));
    }
}

#[test]
fn what_is_not_there_is_told() {
    let said = said(load([("t/gpu-specs.csv", table("gpu-specs.csv").as_bytes())], Timestamp::MAX));
    assert_eq!(
        said,
        "gcp-zones.csv: is missing: copy it from the built-in tables (its header alone is enough)\n\
         aws-spot-advisor.csv: is missing: copy it from the built-in tables (its header alone is enough)\n\
         aws-types.csv: is missing: copy it from the built-in tables (its header alone is enough)\n\
         regions.csv: is missing: copy it from the built-in tables (its header alone is enough)\n\
         egress.csv: is missing: copy it from the built-in tables (its header alone is enough)\n\
         the set of tables: has no table of offers: add one, e.g. aws.csv"
    );
    let nowhere =
        load_dir(Path::new("no/such/folder"), Timestamp::MAX, |path| std::fs::read(path)).expect_err("a fault").to_string();
    assert!(nowhere.starts_with("no/such/folder: cannot be read ("), "{nowhere}");
}

#[test]
fn bytes_that_are_no_text_are_told() {
    let mut bytes = format!("{HEADER}\n{LINE}\n").into_bytes();
    let at = bytes.len() - 30;
    bytes[at] = 0xff;
    let tables = EMBEDDED.map(|(name, text)| (name, text.as_bytes())).into_iter().chain([("t/ours.csv", bytes.as_slice())]);
    assert_eq!(said(load(tables, Timestamp::MAX)), "t/ours.csv:2: is not UTF-8 text: save the file as UTF-8");
}

#[test]
fn a_fault_names_its_line_whatever_ends_the_lines() {
    let broken = LINE.replace("amd64", "z80");
    for end in ["\n", "\r\n", "\n\n", "\r\n\r\n"] {
        let text = [HEADER, LINE, &broken, LINE, ""].join(end);
        let line = 1 + text[..text.find("z80").unwrap()].matches('\n').count();
        let said = said(load_with(&[("t/ours.csv", &text)]));
        assert!(said.contains(&format!("t/ours.csv:{line}: ")), "{end:?}: {said}");
    }
}
