//! The figures of the Python reference for W1, W1n and W2.
//!
//! `STOKER_BENCHMARK_REFERENCE` names a directory with its `catalog.json` and `openb_pod_list_gpuspec33.csv`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::*;

const DAY: f64 = 86_400.0;
/// Start of the dense part of the trace.
const START: f64 = 115.0 * DAY;
/// GPU models of the trace, by the family that stands in for each.
const FAMILIES: [(&str, &str); 6] =
    [("g4dn.", "T4"), ("g5.", "A10"), ("g6.", "G2"), ("g6e.", "G3"), ("p3.", "V100M16"), ("p3dn.", "V100M32")];

struct Reference {
    types: Vec<InstanceType>,
    trace: String,
}

/// A pod of the trace, in its own seconds.
struct Row {
    created: f64,
    scheduled: f64,
    deleted: f64,
    pod: Pod,
}

impl Reference {
    /// Reads the files from the directory, or from where the shared folder or the reference has them.
    fn read() -> Self {
        let root = std::env::var("STOKER_BENCHMARK_REFERENCE").unwrap();
        let file = |name: &str| {
            let folders = ["", "benchmark", "data/traces", "src/alibaba/cluster-trace-gpu-v2023/csv"]
                .map(|folder| Path::new(&root).join(folder).join(name));
            folders.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap()
        };
        let catalogue: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
            serde_json::from_str(&file("catalog.json")).unwrap();
        let sold = catalogue.iter().map(|(name, of)| {
            let number = |key: &str| of[key].as_f64().unwrap();
            (name.as_str(), [number("gpu"), number("cpu_milli"), number("mem_mib"), number("usd_h")])
        });
        // No longer in the catalogue, but in its price file.
        let p3 = [
            ("p3.2xlarge", [1.0, 7_910.0, 55_000.0, 3.06]),
            ("p3.8xlarge", [4.0, 31_850.0, 235_000.0, 12.24]),
            ("p3.16xlarge", [8.0, 63_770.0, 472_000.0, 24.48]),
        ];
        let named = |(name, [gpus, cpu, memory, usd]): (&str, [f64; 4])| {
            let (_, model) = FAMILIES.iter().find(|(family, _)| name.starts_with(family))?;
            let allocatable = Resources { gpus: whole(gpus), milli_cpu: whole(cpu), memory_mib: whole(memory) };
            let hourly = UsdMicros(i64::from(whole(usd * 1e6)));
            Some(InstanceType { name: name.to_owned(), model: (*model).to_owned(), allocatable, hourly })
        };
        let types: Vec<_> = sold.chain(p3).filter_map(named).collect();
        assert_eq!(types.len(), 35);
        Self { types, trace: file("openb_pod_list_gpuspec33.csv") }
    }

    fn rows(&self) -> Vec<Row> {
        let mut lines = self.trace.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let row = |line: &str| {
            let fields: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
            let number = |key: &str| fields[key].parse::<f64>().ok();
            let requests = Resources {
                gpus: whole(number("num_gpu")?),
                milli_cpu: whole(number("cpu_milli")?),
                memory_mib: whole(number("memory_mib")?),
            };
            // There is no P100 at this cloud.
            let models = fields["gpu_spec"].split('|').filter(|model| !model.is_empty());
            let models = models.map(|model| if model == "P100" { "T4" } else { model }).collect::<Vec<_>>();
            let gpu_milli = whole(number("gpu_milli")?);
            let pod = Pod { gpu_milli, ..pod(0.0, 0.0, requests, &models) };
            let (created, scheduled) = (number("creation_time")?, number("scheduled_time")?);
            (requests.gpus > 0).then_some(Row { created, scheduled, deleted: number("deletion_time")?, pod })
        };
        lines.filter_map(row).collect()
    }

    /// Pods of the trace that run at most `longest` seconds, in several copies at shifted times. CPU and memory may be
    /// capped per GPU.
    fn demand(&self, longest: f64, copies: u32, capped: bool) -> Demand {
        let rows = self.rows();
        let seconds = rows.iter().map(|row| row.deleted).fold(0.0, f64::max) - START;
        let mut stream = Seed(0).stream("copies", &[], 0);
        let mut pods = Vec::new();
        for row in rows {
            let runs = row.deleted - row.scheduled.max(START);
            if runs <= 0.0 || row.deleted <= START || row.deleted - row.scheduled > longest {
                continue;
            }
            let mut requests = row.pod.requests;
            if capped {
                requests.milli_cpu = requests.milli_cpu.min(7_600 * requests.gpus);
                requests.memory_mib = requests.memory_mib.min(28_000 * requests.gpus);
            }
            for copy in 0..copies {
                let shift = if copy == 0 { 0.0 } else { stream.unit() * seconds };
                let arrives = (row.created.max(START) - START + shift) % seconds;
                pods.push(Pod { arrives, runs, requests, ..row.pod.clone() });
            }
        }
        Demand { types: self.types.clone(), pods, seconds }
    }
}

fn whole(number: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small whole numbers of the files")]
    let whole = number.round() as u32;
    whole
}

#[test]
#[ignore = "reads the reference's trace and catalogue from STOKER_BENCHMARK_REFERENCE"]
fn it_is_the_references() {
    if crate::is_skipped("STOKER_BENCHMARK_REFERENCE") {
        return;
    }
    let reference = Reference::read();
    let (any, day) = (f64::INFINITY, DAY);
    // Name, demand, bound, ideal static peak and bound with a commitment, and how far each may be off.
    let table = [
        ("W1", reference.demand(any, 1, false), [43_079.0, 77_763.0, 29_490.0], 1e-4),
        ("W1n", reference.demand(any, 1, true), [34_634.0, 68_614.0, 24_122.0], 1e-4),
        // The reference draws other shifts.
        ("W2", reference.demand(day, 4, true), [20_337.0, 51_165.0, 14_918.0], 0.01),
    ];
    for solver in solvers() {
        for (name, demand, expected, off) in &table {
            let start = Instant::now();
            let found = bound(demand, Method { solver, ..Method::default() }).unwrap();
            let took = start.elapsed();
            let committed = found.committed(Milli(620));
            let got = [found.total(), found.static_peak(), committed.total].map(|usd| dollars(usd.0));
            let placed = demand.pods.len() - found.unplaceable;
            println!(
                "{solver} {name}: {placed} pods, {took:.1?}, ${:.2}, static ${:.2}, committed ${:.2}",
                got[0], got[1], got[2]
            );
            // The peak of other shifts is another one.
            let held = if *off > 0.001 { 1 } else { 3 };
            // The reference charges a commitment for the whole of the last hour, in which the trace ends.
            for ((got, expected), off) in got.iter().zip(expected).zip([*off, *off, f64::max(*off, 0.002)]).take(held) {
                assert!((got - expected).abs() <= expected * off, "{solver} {name}: {got} instead of {expected}");
            }
        }
    }
    // A pod with one GPU takes only its share of it.
    let (_, demand, ..) = &table[0];
    let shared = bound(demand, Method { gpus: Gpus::Shared, ..Method::default() }).unwrap();
    println!("W1 with shared GPUs: ${:.2}", dollars(shared.total().0));
    assert!((dollars(shared.total().0) - 40_225.0).abs() < 4.0);
}
