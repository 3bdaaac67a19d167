//! Hand-worked bills, each with its arithmetic.

use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, ProviderId, Region, ZoneId};
use stoker_core::market::offer::{Market, Place};

use super::*;
use crate::spend::{Holder, NodeState, RowKey};

const HOUR: i64 = 3_600;

fn cents(cents: i64) -> UsdMicros {
    UsdMicros(cents * 10_000)
}

/// A machine that ran so many hours: at list, contracted and effective prices it cost so many cents.
fn ran(id: &str, capacity_type: CapacityType, hours: i64, [list, contracted, effective]: [i64; 3]) -> DayRow {
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("p4d.24xlarge").unwrap(),
    };
    let of = Use::Nodes {
        pool: PoolName::new("train").unwrap(),
        market: Market { place, capacity_type },
        model: GpuModel::new("A100").unwrap(),
        state: NodeState::Held,
        holder: Holder::Nobody,
    };
    DayRow {
        key: RowKey { of, instance: Some((ProviderId::new(id).unwrap(), None)), paid_by: None },
        figures: Figures {
            node_parts: hours * HOUR * PARTS,
            gpu_parts: 8 * hours * HOUR * PARTS,
            list: cents(list),
            contracted: cents(contracted),
            effective: cents(effective),
            ..Figures::default()
        },
    }
}

fn number(text: &str) -> Exact {
    Exact::parse(text).unwrap()
}

/// Hours of a machine in the first day: as `[list, contracted, effective, billed]` dollars.
fn usage<'a>(id: &'a str, hours: &str, [list, contracted, effective, billed]: [&str; 4]) -> Charge<'a> {
    Charge {
        category: ChargeCategory::Usage,
        is_correction: false,
        resource_id: id,
        resource_name: "",
        service: "Amazon Elastic Compute Cloud",
        service_category: "Compute",
        service_code: "AmazonEC2",
        usage_type: "",
        time: (0, 24 * HOUR),
        billed: number(billed),
        effective: number(effective),
        list: Some(number(list)),
        contracted: Some(number(contracted)),
        quantity: Some(number(hours)),
        unit: "Hours",
        is_unused: false,
    }
}

fn other<'a>(id: &'a str, category: ChargeCategory, service: &'a str, dollars: &str) -> Charge<'a> {
    Charge { category, service, unit: "GB", service_category: "Storage", ..usage(id, "1", [dollars; 4]) }
}

/// A comparison of the first day, of charges that are all different.
fn compared(rows: &[DayRow], charges: &[Charge<'_>]) -> Compared {
    let mut comparison = Comparison::new((0, 24 * HOUR));
    comparison.calculated(rows);
    for (charge, mark) in charges.iter().zip(0..) {
        comparison.add(charge, || mark);
    }
    let compared = comparison.finish();
    let lines = compared.machines.iter().map(|machine| &machine.line);
    let lines = lines.chain(&compared.unused).chain(compared.others.iter().map(|(_, _, line)| line));
    for line in lines.chain([&compared.total]) {
        let explained: i64 = line.parts.values().map(|part| part.0).sum();
        assert_eq!(line.calculated.0 + explained, line.billed.0, "{line:?}");
    }
    compared
}

fn parts(line: &Line) -> Vec<(Part, UsdMicros)> {
    line.parts.iter().map(|(part, amount)| (*part, *amount)).collect()
}

/// Stoker counted 10 h at $4: $40. The bill has 10.5 h: half an hour at $4 is $2. At its list price of $4.20 that is $44.10, and $44.10 -
/// $42 = $2.10 of it is the list price. A discount of 10 % takes $4.41, and a savings plan pays for all of it at $30: $9.69 less than
/// $39.69. The plan is paid for elsewhere, so the invoice has nothing of it.
#[test]
fn a_difference_is_explained_by_hours_list_price_discounts_and_commitments() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::OnDemand, 10, [4_000, 4_000, 4_000])];
    let of = compared(&rows, &[usage("i-0", "10.5", ["44.10", "39.69", "30", "0"])]);
    let [machine] = &of.machines[..] else { panic!("{of:?}") };
    assert_eq!((machine.hours, machine.billed_hours), (10_000_000, Some(10_500_000)));
    assert_eq!(
        parts(&machine.line),
        [
            (Part::Hours, cents(200)),
            (Part::ListPrice, cents(210)),
            (Part::Discount, cents(-441)),
            (Part::Commitments, cents(-969))
        ]
    );
    assert_eq!((of.total.billed, of.total.invoiced, of.total.difference()), (cents(3_000), cents(0), cents(-1_000)));
    assert_eq!(of.total, machine.line);
}

/// What Stoker knew already is no difference: list $40, a discount of its own to $36, and a plan to $25 are the same on the bill.
#[test]
fn what_was_calculated_as_billed_is_no_difference() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::OnDemand, 10, [4_000, 3_600, 2_500])];
    let of = compared(&rows, &[usage("i-0", "10", ["40", "36", "25", "25"])]);
    assert_eq!((parts(&of.total), of.total.difference()), (vec![], cents(0)));
}

/// A spot machine at $12 an hour for 2 h, $24. On the bill it has 3 h at $11, $33: an hour more is $12, and the price explains $33 - $24 -
/// $12 = -$3, whatever the bill takes for the list price of spot.
#[test]
fn spot_differs_by_hours_and_price() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::Spot, 2, [6_400, 2_400, 2_400])];
    let of = compared(&rows, &[usage("i-0", "3", ["33", "33", "33", "33"])]);
    assert_eq!(parts(&of.total), [(Part::Hours, cents(1_200)), (Part::Price, cents(-300))]);
}

/// Without `ContractedCost` nothing tells discounts from commitments: $40 against $36 is the price. Without hours, they are in it too.
#[test]
fn what_the_bill_does_not_tell_is_not_made_up() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::OnDemand, 10, [4_000, 4_000, 4_000])];
    let charge = usage("i-0", "10", ["40", "40", "36", "36"]);
    let of = compared(&rows, &[Charge { contracted: None, ..charge }]);
    assert_eq!(parts(&of.total), [(Part::Price, cents(-400))]);
    let of = compared(&rows, &[Charge { list: None, quantity: None, ..charge }]);
    assert_eq!(of.machines[0].billed_hours, None);
    assert_eq!(parts(&of.total), [(Part::Commitments, cents(-400))]);
}

/// Two machines at $40, one of which the bill does not have. Beside it there are a credit of $5 and $1.25 of data transfer of the first,
/// a machine of others for $7, a disk for $3, a plan that nothing used for $6 where Stoker calculated $2, a correction of -$0.50, $9 of
/// purchases that are spread elsewhere, and $4 of taxes.
#[test]
fn all_else_on_the_bill_has_its_name() {
    use ChargeCategory::{Adjustment, Credit, Purchase, Tax};
    let unused = DayRow {
        key: RowKey { of: Use::Unused { commitment: "plan".into() }, instance: None, paid_by: None },
        ..ran("aws:///a/i-9", CapacityType::OnDemand, 0, [0, 0, 200])
    };
    let rows = [
        ran("aws:///use1-az1/i-0", CapacityType::OnDemand, 10, [4_000, 4_000, 4_000]),
        ran("aws:///use1-az1/i-1", CapacityType::OnDemand, 10, [4_000, 4_000, 4_000]),
        unused,
    ];
    let arn = "arn:aws:ec2:us-east-1:123456789012:instance/i-0";
    let of = compared(
        &rows,
        &[
            usage(arn, "10", ["40"; 4]),
            other("i-0", Credit, "Amazon Elastic Compute Cloud", "-5"),
            other("i-0", ChargeCategory::Usage, "Amazon Elastic Compute Cloud", "1.25"),
            Charge { usage_type: "USE1-EBSOptimized:p4d", ..usage("i-0", "10", ["0"; 4]) },
            usage("i-77", "1", ["7"; 4]),
            other("vol-1", ChargeCategory::Usage, "Amazon Elastic Block Store", "3"),
            Charge { is_unused: true, ..other("plan-arn", ChargeCategory::Usage, "Savings Plans", "6") },
            other("", Adjustment, "", "-0.50"),
            Charge { effective: number("0"), ..other("plan-arn", Purchase, "Savings Plans", "9") },
            other("", Tax, "", "4"),
        ],
    );
    assert_eq!(
        parts(&of.total),
        [
            (Part::NotBilled, cents(-4_000)),
            (Part::UnusedCommitments, cents(400)),
            (Part::OtherCharges, cents(125)),
            (Part::OtherMachines, cents(700)),
            (Part::OtherResources, cents(300)),
            (Part::Credits, cents(-500)),
            (Part::Taxes, cents(400)),
            (Part::Corrections, cents(-50)),
        ]
    );
    // 82 - 40 + 4 + 1.25 + 7 + 3 - 5 + 4 - 0.50 = 55.75; the invoice has the purchase as well.
    assert_eq!((of.total.calculated, of.total.billed, of.total.invoiced), (cents(8_200), cents(5_575), cents(6_475)));
    let first = &of.machines[0];
    assert_eq!(parts(&first.line), [(Part::OtherCharges, cents(125)), (Part::Credits, cents(-500))]);
    assert_eq!((first.billed_hours, first.line.billed), (Some(10_000_000), cents(3_625)));
    let missing = &of.machines[1];
    assert_eq!((missing.is_billed, missing.billed_hours, missing.line.billed), (false, None, cents(0)));
    let disk = (Part::OtherResources, "Amazon Elastic Block Store".to_owned());
    assert!(of.others.iter().any(|(part, service, line)| (*part, service.clone()) == disk && line.billed == cents(300)));
}

/// Of a charge of $8 for 18:00 to 02:00, six hours of eight are in the first day: $6, and $2 are left out. What is of the day before is
/// left out, and a charge for a moment counts where that is.
#[test]
fn charges_count_by_the_time_that_they_are_for() {
    let charge = |time, dollars| Charge { time, ..other("vol-1", ChargeCategory::Usage, "disks", dollars) };
    let of = compared(
        &[],
        &[
            charge((18 * HOUR, 26 * HOUR), "8"),
            charge((-24 * HOUR, 0), "100"),
            charge((24 * HOUR, 24 * HOUR), "50"),
            charge((HOUR, HOUR), "1"),
        ],
    );
    assert_eq!(of.total.billed, cents(700));
    assert_eq!(of.cut, Aside { charges: 1, effective: cents(200) });
    assert_eq!(of.outside, Aside { charges: 2, effective: cents(15_000) });
    assert_eq!(of.reach, Some((-24 * HOUR, 26 * HOUR)));
}

/// Of three services of 0.4 micro-dollars each none has a whole one, and together they have 1.2: one of rounding. Ten thousand charges of
/// one machine for 0.00000149 are $0.0149 exactly, as each is rounded with the others and not for itself.
#[test]
fn rounding_is_a_part_of_its_own() {
    let tiny = |service| other("", ChargeCategory::Usage, service, "0.0000004");
    let of = compared(&[], &["a", "b", "c"].map(tiny));
    assert_eq!((parts(&of.total), of.total.billed), (vec![(Part::Rounding, UsdMicros(1))], UsdMicros(1)));
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::Spot, 1, [0, 0, 0])];
    let charges = vec![usage("i-0", "0.0001", ["0.00000149"; 4]); 10_000];
    let of = compared(&rows, &charges);
    assert_eq!((parts(&of.total), of.total.billed), (vec![(Part::Price, UsdMicros(14_900))], UsdMicros(14_900)));
}

/// A file that was read twice counts once, as far as machines go; two like charges of no machine may both be right.
#[test]
fn a_charge_of_a_machine_counts_once() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::Spot, 1, [100, 100, 100])];
    let mut comparison = Comparison::new((0, 24 * HOUR));
    comparison.calculated(&rows);
    for mark in [1, 1, 2] {
        comparison.add(&usage("i-0", "0.5", ["0.5"; 4]), || mark);
        comparison.add(&other("", ChargeCategory::Tax, "", "1"), || panic!("nobody asks"));
    }
    let of = comparison.finish();
    assert_eq!((parts(&of.total), of.total.billed), (vec![(Part::Taxes, cents(300))], cents(400)));
    assert_eq!(of.repeated, Aside { charges: 1, effective: cents(50) });
}

/// Clouds write the same machine in ways of their own; what only looks like it is another.
#[test]
fn machines_are_known_by_what_clouds_call_them() {
    let set = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/aks-gpu";
    let vm = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/VM-1";
    let of = |id: &str| ran(id, CapacityType::OnDemand, 1, [100, 100, 100]);
    let rows = [
        of("aws:///use1-az1/i-0"),
        of(&format!("azure://{set}/virtualMachines/0")),
        of(&format!("azure://{set}/virtualMachines/1")),
        of(&format!("azure://{vm}")),
        of("gce://project/us-central1-a/gke-gpu-1"),
        of("sim:///a/i-5"),
        of("sim:///b/i-5"),
    ];
    let google = "//compute.googleapis.com/projects/1/zones/us-central1-a";
    let by_name = |id, name| Charge {
        resource_name: name,
        unit: "seconds",
        service: "Compute Engine",
        service_code: "",
        ..usage(id, "3600", ["1"; 4])
    };
    let (lower, instance, disk) = (vm.to_lowercase(), format!("{google}/instances/4711"), format!("{google}/disks/gke-gpu-1"));
    let charges = [
        usage("i-0", "1", ["1"; 4]),
        usage(set, "2", ["2"; 4]),
        usage(&lower, "1", ["1"; 4]),
        by_name(&instance, "gke-gpu-1"),
        Charge { unit: "byte-seconds", service_category: "Storage", ..by_name(&disk, "gke-gpu-1") },
        usage("sim:///a/i-5", "1", ["1"; 4]),
        // Two have that name.
        usage("i-5", "1", ["1"; 4]),
    ];
    let of = compared(&rows, &charges);
    let machines: Vec<(&str, usize, bool, Option<i64>)> =
        of.machines.iter().map(|of| (of.id.as_str(), of.machines, of.is_billed, of.billed_hours)).collect();
    let hour = Some(1_000_000);
    assert_eq!(
        machines,
        [
            ("aws:///use1-az1/i-0", 1, true, hour),
            (&format!("azure://{set}"), 2, true, Some(2_000_000)),
            (&format!("azure://{vm}"), 1, true, hour),
            // Google counts hours of each part of a machine.
            ("gce://project/us-central1-a/gke-gpu-1", 1, true, None),
            ("sim:///a/i-5", 1, true, hour),
            ("sim:///b/i-5", 1, false, None),
        ]
    );
    assert_eq!(
        parts(&of.total),
        [(Part::NotBilled, cents(-100)), (Part::OtherMachines, cents(100)), (Part::OtherResources, cents(100))]
    );
}

/// Whatever a bill holds, the parts add up.
#[test]
fn absurd_bills_add_up_or_reach_an_end() {
    let rows = [ran("aws:///use1-az1/i-0", CapacityType::OnDemand, 1, [100, 100, 100])];
    for amount in ["999999999999.999999", "-999999999999.999999", "-0.1", "1e-18"] {
        let mut comparison = Comparison::new((0, 24 * HOUR));
        comparison.calculated(&rows);
        for mark in 0..50 {
            comparison.add(&usage("i-0", amount, [amount, "-7", amount, "3"]), || mark);
            comparison.add(&Charge { time: (i64::MIN / 8, i64::MAX / 8), ..usage("i-2", "1", [amount; 4]) }, || mark);
        }
        assert_eq!(comparison.finish().charges, 100);
    }
}
