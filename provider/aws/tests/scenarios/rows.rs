//! The defences that must be missed: the test that notices each, for `tests/sabotage.sh`.

use std::collections::BTreeSet;
use std::path::Path;

/// The switch that takes a defence away, and the test that fails without it.
const ROWS: [(&str, &str); 4] = [
    ("aws-no-client-token", "launches::a_lost_answer_is_asked_again_and_makes_one_machine"),
    ("aws-refuse-without-look", "launches::a_machine_of_a_lost_answer_is_found_before_a_no_is_believed"),
    ("aws-retry-on-500", "stock::a_stock_out_is_refused_after_one_call_although_its_status_is_500"),
    ("aws-preference-open", "reservations::the_third_of_a_reservation_of_two_is_refused_and_bought_on_demand_outside_it"),
];

/// Prints the table: switch and test, one row a line.
#[test]
#[ignore = "prints the table"]
fn table() {
    for (switch, test) in ROWS {
        println!("row\t{switch}\t{test}");
    }
}

#[test]
fn every_switch_has_a_row() {
    let mut switches = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut switches);
    assert_eq!(switches, ROWS.iter().map(|(switch, _)| (*switch).to_owned()).collect());
}

fn collect(dir: &Path, switches: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, switches);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            let parts = text.split("sabotage::on(\"").skip(1);
            switches.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
        }
    }
}
