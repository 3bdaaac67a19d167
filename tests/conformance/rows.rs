//! The table of rows, and the test that it is whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the autoscaler expects, the test of it, and the switch that takes its defence away.
const ROWS: &[(&str, &str, &str)] = &[
    ("ten things, 1: options", "ten::options_are_answered_empty", "options-filled-in-part"),
    ("ten things, 2: foreign nodes", "ten::foreign_nodes_are_nobodys_and_no_error", "foreign-node-error"),
    ("ten things, 2: decreasing", "ten::decreasing_by_too_much_is_no_error", "decrease-refuses"),
    ("ten things, 3: target", "ten::one_missing_node_taken_back_three_ways_counts_once", "target-is-a-counter"),
    ("ten things, 4: ids", "ten::instance_ids_are_provider_ids", "instance-id-altered"),
    ("ten things, 5: errors", "ten::errors_are_told_of_placeholders_that_still_count", "error-on-running"),
    ("ten things, 6: growing", "ten::growing_returns_before_there_are_machines", "increase-waits"),
    ("ten things, 7: templates", "ten::templates_are_whole_for_every_release", "template-one-field"),
    ("ten things, 7: shapes", "ten::a_changed_shape_is_a_new_group", "shape-keeps-id"),
    ("ten things, 8: GPU label", "ten::the_gpu_label_is_ours_and_there_from_the_start", "gpu-label-late"),
    ("ten things, 8: slices", "ten::what_publishes_no_gpu_bears_no_gpu_label", "gpu-label-without-gpus"),
    ("ten things, 9: deleting", "ten::deleting_below_the_minimum_or_what_is_gone_is_fine", "delete-refuses-unknown"),
    ("ten things, 9: cleanup", "ten::cleanup_deletes_nothing", "cleanup-deletes"),
    ("ten things, 9: dead nodes", "ten::nodes_of_dead_machines_go", "dead-nodes-stay"),
    ("ten things, 10: upcoming", "ten::what_nobody_asked_for_closes_the_groups_while_it_boots", "uncredited-open"),
    ("ten things, 10: max size", "ten::max_size_follows_the_world", "max-size-static"),
    ("ten things, 10: large requests", "ten::a_large_request_reaches_the_expander", "expander-4mib"),
    ("ten things, 10: prices", "ten::nothing_costs_nothing", "pods-cost-nothing"),
    ("real runs: restart", "real_runs::a_restarted_autoscaler_buys_nothing_twice", "restart-credited"),
    ("real runs: half a view", "real_runs::refresh_fails_rather_than_show_half_a_view", "refresh-half-view"),
    ("real runs: floors", "real_runs::floors_grow_through_min_size", "floor-not-shown"),
    ("real runs: floor and stock-out", "real_runs::a_floor_that_cannot_be_had_moves_to_another_group", "floor-stays"),
    ("real runs: decrease of live nodes", "real_runs::slow_registered_nodes_survive_a_decrease", "decrease-ends-registered"),
    ("real runs: mixed answer", "real_runs::a_part_had_is_completed_elsewhere_and_not_overbought", "part-as-placeholders"),
    (
        "real runs: mixed answer over two orders",
        "real_runs::an_order_that_gets_nothing_does_not_hide_what_is_coming",
        "coming-by-order",
    ),
    ("real runs: failed clean-up", "real_runs::failed_placeholders_can_be_deleted", "delete-refuses-failed"),
    ("real runs: spot loss", "real_runs::lost_spot_nodes_lower_the_target_and_are_not_refilled", "spot-refilled"),
    ("real runs: expander", "real_runs::the_expander_never_vetoes_by_accident", "expander-empty"),
    ("real runs: price expander", "real_runs::prices_are_told_to_every_release", "prices-new-fields-only"),
    ("real runs: remembered template", "real_runs::nodes_are_what_their_template_says", "node-unlike-template"),
    ("real runs: kill -9 of the server", "real_runs::a_killed_server_buys_nothing_twice", "restart-forgets"),
    ("real runs: slow deletion", "real_runs::a_slow_deletion_is_told_as_one", "deleting-looks-running"),
    (
        "real runs: late GPULabel",
        "real_runs::a_new_connection_closes_what_is_coming_before_its_first_list",
        "session-per-process",
    ),
    ("real runs: late annotation", "real_runs::a_node_that_became_busy_after_the_mark_is_refused", "busy-deleted"),
    ("taken back: time-out", "taken_back::a_timed_out_request_takes_back_only_what_is_missing", "decrease-ends-booting"),
    ("taken back: unregistered", "taken_back::an_instance_without_a_node_is_known_by_its_id_alone", "ids-need-nodes"),
    ("taken back: size fix", "taken_back::a_size_fix_lowers_the_target_at_once", "size-fix-ignored"),
    ("taken back: in one loop", "taken_back::a_deletion_lowers_the_target_before_it_is_answered", "delete-not-lowered"),
    ("taken back: placeholders", "taken_back::every_node_accepted_is_listed_under_an_id_of_its_own", "placeholders-unlisted"),
    (
        "taken back: boot deadline",
        "taken_back::a_machine_that_does_not_join_is_told_before_the_autoscaler_gives_up",
        "boot-deadline-off",
    ),
    (
        "taken back: a late machine beside others",
        "taken_back::a_late_machine_does_not_hide_what_is_coming",
        "late-beside-hopeful-fails",
    ),
    ("start-up: options", "startup::a_node_that_joined_may_take_its_time_to_be_ready", "options-echoed"),
    ("failures: code", "failures::every_error_has_a_code", "error-without-code"),
    ("failures: placeholders", "failures::failed_placeholders_count_until_they_are_deleted", "failed-dropped"),
    ("failures: fresh ids", "failures::every_attempt_has_a_fresh_id", "placeholder-reused"),
    ("failures: set of codes", "failures::codes_are_few", "code-is-message"),
    ("failures: nothing to be had", "failures::nothing_to_be_had_leads_to_the_next_group_at_once", "stock-out-waits"),
    ("failures: a part to be had", "failures::a_part_to_be_had_stays_and_the_group_is_closed", "closed-looks-open"),
    ("scale-down: annotation", "scale_down::busy_nodes_are_held_and_the_holds_of_others_left_alone", "busy-not-held"),
    ("scale-down: batches", "scale_down::a_batch_goes_whole_or_not_at_all", "batch-in-parts"),
    ("scale-down: Node objects", "scale_down::deleted_machines_and_their_nodes_go", "deleted-not-ended"),
    ("scale-down: min size", "scale_down::min_size_is_the_floor_or_what_is_busy", "min-without-busy"),
    ("scale-down: template labels", "scale_down::templates_carry_all_that_is_read", "template-bare"),
    ("scale-down: start-up taints", "scale_down::a_policy_may_not_set_start_up_taints", "startup-taint-allowed"),
];

/// The files with the tests of the rows.
const TESTS: [(&str, &str); 6] = [
    ("failures", include_str!("failures.rs")),
    ("real_runs", include_str!("real_runs.rs")),
    ("scale_down", include_str!("scale_down.rs")),
    ("startup", include_str!("startup.rs")),
    ("taken_back", include_str!("taken_back.rs")),
    ("ten", include_str!("ten.rs")),
];

/// Prints the table for `tests/sabotage.sh`: switch and test, one row a line.
#[test]
#[ignore = "prints the table"]
fn table() {
    for (_, test, switch) in ROWS {
        println!("row\t{switch}\t{test}");
    }
}

#[test]
fn every_test_and_every_switch_has_a_row() {
    let tests: BTreeSet<String> = TESTS.iter().flat_map(|(file, text)| tests_of(file, text)).collect();
    let listed: BTreeSet<String> = ROWS.iter().map(|(_, test, _)| (*test).to_owned()).collect();
    assert_eq!(listed, tests);
    let provider = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider");
    let mut switches = BTreeSet::new();
    for sources in [provider.join("core/src"), provider.join("service/src")] {
        collect_switches(&sources, &mut switches);
    }
    let listed: BTreeSet<String> = ROWS.iter().map(|(.., switch)| (*switch).to_owned()).collect();
    assert_eq!(listed, switches);
    assert_eq!((listed.len(), tests.len()), (ROWS.len(), ROWS.len()), "each row has a test and a switch of its own");
}

fn tests_of(file: &str, text: &str) -> Vec<String> {
    let after = |line: &str| line.trim_start_matches("async ").strip_prefix("fn ").map(ToOwned::to_owned);
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with("#[tokio::test") || pair[0] == "#[test]");
    pairs.filter_map(|pair| after(pair[1])).filter_map(|rest| Some(format!("{file}::{}", rest.split_once('(')?.0))).collect()
}

fn collect_switches(dir: &Path, switches: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_switches(&path, switches);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let parts = text.split("sabotage::on(\"").skip(1);
            switches.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
        }
    }
}
