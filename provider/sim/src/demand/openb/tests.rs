//! The trace's columns with a few pods of our own.

use stoker_core::base::units::UsdMicros;

use super::*;
use crate::demand::Service;

const HEADER: &str =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";

fn types() -> Vec<InstanceType> {
    let of = |name: &str, model: &str, gpus, hourly| InstanceType {
        name: name.to_owned(),
        model: model.to_owned(),
        allocatable: Resources { gpus, milli_cpu: 7_910 * gpus, memory_mib: 30_000 * gpus },
        hourly: UsdMicros(hourly),
    };
    vec![of("g4dn.2xlarge", "T4", 1, 752_000), of("p3.8xlarge", "V100", 4, 12_240_000)]
}

fn trace(lines: &[&str]) -> String {
    [&[HEADER], lines].concat().join("\n")
}

fn from(starts: f64) -> Selection {
    Selection { starts, ..Selection::whole() }
}

fn faults(text: &str, selection: &Selection) -> Vec<String> {
    parse(text, &types(), selection).unwrap_err().iter().map(ToString::to_string).collect()
}

const LINES: [&str; 5] = [
    "a,12000,16384,1,460,,LS,Running,0,2000,0",
    "b,4000,8000,1,1000,P100|T4|V100M16,BE,Running,1100,1500,1200",
    "no-gpu,4000,8000,0,0,,LS,Running,1100,1500,1200",
    "never,4000,8000,1,1000,,LS,Pending,1100,1500,",
    "c,40000,200000,4,1000,V100M16,Burstable,Failed,1600,1900,1600",
];

#[test]
fn a_trace_is_told_from_other_files_by_its_header() {
    assert!(is_trace(&trace(&LINES)) && is_trace(&format!("\n\u{feff}{HEADER}")));
    assert!(!is_trace("name,arrives,runs,gpus,cpu,memory\n") && !is_trace(""));
}

#[test]
fn scheduled_gpu_pods_make_the_demand() {
    let read = parse(&trace(&LINES), &types(), &from(1000.0)).unwrap();
    let pods = &read.demand.pods;
    assert!((read.demand.seconds - 1000.0).abs() < 1e-9);
    // The first pod needs more CPU than one GPU comes with, and finds it with four.
    let plain: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.arrives, pod.runs)).collect();
    assert_eq!(plain, [("a", 0.0, 1000.0), ("b", 100.0, 300.0)]);
    assert_eq!(pods[1].models, ["T4", "V100"]);
    assert_eq!(pods[1].service, Service::BestEffort);
    assert_eq!(read.left_out, ["c"]);
    let capped = parse(&trace(&LINES), &types(), &Selection { starts: 1000.0, ..Selection::capped() }).unwrap();
    assert_eq!(capped.left_out, [] as [&str; 0]);
    assert_eq!(capped.demand.pods[2].requests, Resources { gpus: 4, milli_cpu: 30_400, memory_mib: 112_000 });
}

#[test]
fn copies_are_shifted_around_the_time() {
    let churn = Selection { starts: 1000.0, longest: Some(500.0), ..Selection::churn() };
    let given = Shifts::Given(vec![0.0, 500.0, 950.0, 0.0, 0.0, 0.0]);
    let read = parse(&trace(&LINES), &types(), &Selection { shifts: given, ..churn.clone() }).unwrap();
    let of_b: Vec<_> = read.demand.pods.iter().filter(|pod| pod.name.starts_with('b')).map(|pod| pod.arrives).collect();
    assert_eq!(of_b, [50.0, 100.0, 100.0, 600.0]);
    assert_eq!(read.demand.pods.len(), 8);
    let drawn = |seed| parse(&trace(&LINES), &types(), &Selection { shifts: Shifts::Drawn(seed), ..churn.clone() });
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let short = Selection { shifts: Shifts::Given(vec![0.0; 5]), ..churn };
    assert_eq!(
        faults(&trace(&LINES), &short),
        ["line 6: there are only 5 shifts: give one for each chosen pod and copy but the first, or let them be drawn"]
    );
}

#[test]
fn halves_are_apart() {
    let part = |part| parse(&trace(&LINES), &types(), &Selection { part, ..from(1000.0) }).unwrap();
    let (first, second) = (part(Part::FirstHalf), part(Part::SecondHalf));
    let names = |trace: &Trace| trace.demand.pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&first), first.left_out.len(), first.demand.seconds), (vec!["a".into(), "b".into()], 0, 500.0));
    assert_eq!((names(&second), second.left_out.len(), second.demand.seconds), (vec!["a".into()], 1, 500.0));
}

#[test]
fn all_faults_are_told_with_line_and_cure() {
    let text = trace(&[
        "a,12000,16384,1,460,,LS,Running,300,200,300",
        "b,x,16384,1,1000,H900,LS,Running,0,200,0",
        HEADER,
        "c,1,2,3",
        "d,900000,16384,1,1000,,LS,Running,0,200,0",
        "e,1000,16384,1,1000,,LS,Running,20,-5,10",
    ]);
    assert_eq!(
        faults(&text, &Selection { leaves_out: false, ..from(0.0) }),
        [
            "line 2: deletion_time 200 is before scheduled_time 300: put them in order, or remove the line",
            "line 3: cpu_milli is \"x\", which is no number from 0: repair the line, or remove it",
            "line 3: no model stands in for GPU model H900: use one of A10, G2, G3, P100, T4, V100M16 and V100M32, or remove it",
            "line 4: the header comes again: keep one trace in the file, and read the other one by itself",
            "line 5: 4 fields instead of 11: repair the line, or download the list of pods again",
            "line 6: no instance type can run pod d: offer a larger type of its models, cap its requests, or leave such pods out",
            "line 7: deletion_time is \"-5\", which is no number from 0: repair the line, or remove it",
            "line 7: scheduled_time 10 is before creation_time 20: put them in order, or remove the line",
        ]
    );
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    assert_eq!(faults("", &from(0.0)), ["line 1: the file is empty: download the list of pods again"]);
    assert_eq!(
        faults("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase\n", &from(0.0)),
        ["creation_time", "deletion_time", "scheduled_time"].map(|column| format!(
            "line 1: there is no column {column}: use a list of pods of the trace of 2023, with its header"
        ))
    );
    assert_eq!(
        faults(&trace(&LINES), &from(5000.0)),
        ["line 1: none of the 3 scheduled GPU pods runs in the chosen time: start earlier, or choose longer runs"]
    );
    let missing = read(Path::new("/nowhere/pods.csv"), &types(), &from(0.0)).unwrap_err().to_string();
    assert!(missing.starts_with("/nowhere/pods.csv: ") && missing.contains("openb_pod_list_*.csv"), "{missing}");
}

#[test]
fn a_file_of_another_kind_does_not_flood_the_screen() {
    let text = trace(&["a,1,2"; 100]);
    let faulty = Unreadable::Faulty { path: "pods.csv".into(), faults: parse(&text, &types(), &from(0.0)).unwrap_err() };
    let shown = faulty.to_string();
    assert_eq!(shown.lines().count(), 42);
    assert!(shown.starts_with("pods.csv:\nline 2: 3 fields") && shown.ends_with("\nand 60 more"), "{shown}");
}
