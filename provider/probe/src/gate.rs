//! The conditions of a started node: what its instance type should have, against what the driver shows.

use stoker_proto::probe::driver::State;
use stoker_proto::probe::gate::{Kind, Result as Outcome};
use stoker_proto::probe::{Driver, Gate, Gpu};

/// How much less memory than the data sheet's a GPU may show, in percent: ECC and the driver keep some back (an L4 of 24 GiB shows 22.5).
const KEPT_BACK_PERCENT: u64 = 10;

/// What the node should have. What is not given is not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Expected {
    /// How many GPUs the node should have
    #[arg(long = "expect-gpus", env = "STOKER_EXPECT_GPUS", value_name = "COUNT")]
    pub gpus: Option<u32>,
    /// Model that each should be, as a word or words of NVML's name: `H100`, `RTX PRO 6000`
    #[arg(long = "expect-model", env = "STOKER_EXPECT_MODEL", value_name = "MODEL", value_parser = model)]
    pub model: Option<String>,
    /// Memory that each should have, in GiB by the data sheet; up to a tenth less is accepted
    #[arg(long = "expect-memory-gib", env = "STOKER_EXPECT_MEMORY_GIB", value_name = "GIB")]
    pub memory_gib: Option<u64>,
    /// Oldest acceptable driver: `570.86`
    #[arg(long = "min-driver", env = "STOKER_MIN_DRIVER", value_name = "VERSION", value_parser = driver)]
    pub driver: Option<String>,
}

/// With a word at least, else no name holds it.
fn model(text: &str) -> Result<String, String> {
    if text.chars().any(|sign| sign.is_ascii_alphanumeric()) {
        Ok(text.to_owned())
    } else {
        Err("names no model: write it like H100".to_owned())
    }
}

fn driver(text: &str) -> Result<String, String> {
    numbers(text).map(|_| text.to_owned()).ok_or_else(|| "not a driver's version: write it like 570.86".to_owned())
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse::<u32>().ok()).collect()
}

/// How XID events are listened to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Listening {
    /// Not known: the driver is not open.
    #[default]
    Unknown,
    /// To every GPU.
    All,
    /// Not to every GPU, in words.
    Failed(String),
}

/// How each gate stands.
pub fn gates(expected: &Expected, driver: &Driver, counted: Option<u32>, gpus: &[Gpu], listening: &Listening) -> Vec<Gate> {
    let ready = driver.state() == State::Ready;
    let of = |kind: Kind, (result, detail): (Outcome, String)| Gate { kind: kind.into(), result: result.into(), detail };
    let checked = |kind: Kind, check: Option<(Outcome, String)>| {
        let answer = match check {
            None => (Outcome::Unknown, "nothing is expected".to_owned()),
            Some(_) if !ready => (Outcome::Unknown, "the driver does not answer".to_owned()),
            Some(answer) => answer,
        };
        of(kind, answer)
    };
    vec![
        of(Kind::Driver, if ready { passed() } else { (Outcome::Failed, driver.detail.clone()) }),
        checked(Kind::DriverVersion, expected.driver.as_deref().map(|oldest| version(oldest, &driver.driver_version))),
        checked(Kind::GpuCount, count(expected.gpus, counted, gpus)),
        checked(Kind::GpuModel, expected.model.as_deref().map(|model| models(model, gpus))),
        checked(Kind::GpuMemory, expected.memory_gib.map(|gib| memory(gib, gpus))),
        of(
            Kind::Events,
            match listening {
                Listening::Unknown => (Outcome::Unknown, "the driver does not answer".to_owned()),
                Listening::All => passed(),
                Listening::Failed(why) => (Outcome::Failed, why.clone()),
            },
        ),
    ]
}

fn passed() -> (Outcome, String) {
    (Outcome::Passed, String::new())
}

fn version(oldest: &str, found: &str) -> (Outcome, String) {
    match (numbers(oldest), numbers(found)) {
        (Some(least), Some(have)) if have >= least => passed(),
        (Some(_), Some(_)) => (Outcome::Failed, format!("driver {found} is older than {oldest}")),
        _ => (Outcome::Unknown, format!("driver {found:?} and {oldest:?} cannot be compared")),
    }
}

/// A GPU that is counted and cannot be opened fails the gate whatever is expected, and so does a node without any: probes are for GPU nodes.
fn count(expected: Option<u32>, counted: Option<u32>, gpus: &[Gpu]) -> Option<(Outcome, String)> {
    let Some(counted) = counted else {
        return expected.map(|_| (Outcome::Unknown, "the driver does not count its GPUs".to_owned()));
    };
    if counted == 0 && expected != Some(0) {
        let expected = expected.map(|expected| format!(", {expected} expected")).unwrap_or_default();
        return Some((Outcome::Failed, format!("the driver counts no GPU{expected}")));
    }
    let opened = gpus.iter().filter(|gpu| !gpu.uuid.is_empty() && !lost(gpu)).count();
    if opened < counted as usize {
        return Some((Outcome::Failed, format!("the driver counts {counted} GPUs, {opened} can be opened")));
    }
    let expected = expected? as usize;
    Some(if opened == expected { passed() } else { (Outcome::Failed, format!("{opened} GPUs, {expected} expected")) })
}

fn lost(gpu: &Gpu) -> bool {
    use stoker_proto::probe::Why;
    gpu.memory.is_none() && gpu.unknown.iter().any(|unknown| unknown.why() == Why::GpuLost)
}

fn models(model: &str, gpus: &[Gpu]) -> (Outcome, String) {
    if let Some(gpu) = gpus.iter().find(|gpu| gpu.name.is_empty()) {
        return (Outcome::Unknown, format!("the name of GPU {} cannot be read", gpu.index));
    }
    let others = gpus.iter().filter(|gpu| !names(&gpu.name, model)).map(|gpu| format!("GPU {} is {:?}", gpu.index, gpu.name));
    listed(&others.collect::<Vec<_>>(), gpus, &format!("not {model}"))
}

/// Whether the model's words are among the name's, one after the other: `A10` is not in `NVIDIA A100-SXM4-80GB`.
fn names(name: &str, model: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|sign: char| !sign.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_uppercase)
            .collect()
    };
    let (name, model) = (words(name), words(model));
    !model.is_empty() && name.windows(model.len()).any(|window| window == model)
}

fn memory(gib: u64, gpus: &[Gpu]) -> (Outcome, String) {
    let least = (gib << 30) / 100 * (100 - KEPT_BACK_PERCENT);
    let mut small = Vec::new();
    for gpu in gpus {
        match &gpu.memory {
            Some(memory) if memory.total_bytes >= least => {}
            Some(memory) => small.push(format!("GPU {} has {} MiB", gpu.index, memory.total_bytes >> 20)),
            None => return (Outcome::Unknown, format!("the memory of GPU {} cannot be read", gpu.index)),
        }
    }
    listed(&small, gpus, &format!("{gib} GiB expected"))
}

fn listed(faults: &[String], gpus: &[Gpu], expected: &str) -> (Outcome, String) {
    match (faults.is_empty(), gpus.is_empty()) {
        (true, true) => (Outcome::Unknown, "there is no GPU".to_owned()),
        (true, false) => passed(),
        (false, _) => (Outcome::Failed, format!("{}: {expected}", faults.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use stoker_proto::probe::Memory;

    use super::*;

    fn gpu(index: u32, name: &str, mib: u64) -> Gpu {
        let memory = Memory { used_bytes: 0, total_bytes: mib << 20, reserved_bytes: 0 };
        Gpu { uuid: format!("GPU-{index}"), index, name: name.to_owned(), memory: Some(memory), ..Gpu::default() }
    }

    fn outcomes(expected: &Expected, state: State, counted: Option<u32>, gpus: &[Gpu]) -> Vec<Outcome> {
        let driver = Driver { state: state.into(), driver_version: "570.86.15".to_owned(), ..Driver::default() };
        gates(expected, &driver, counted, gpus, &Listening::All).iter().map(Gate::result).collect()
    }

    #[test]
    fn what_is_not_expected_is_not_checked() {
        use Outcome::{Passed, Unknown};
        let all = outcomes(&Expected::default(), State::Ready, Some(1), &[gpu(0, "NVIDIA L4", 23_034)]);
        assert_eq!(all, [Passed, Unknown, Unknown, Unknown, Unknown, Passed]);
    }

    #[test]
    fn each_expectation_can_be_met_and_missed() {
        let with = |gpus, model: &str, memory, driver: &str| Expected {
            gpus: Some(gpus),
            model: Some(model.to_owned()),
            memory_gib: Some(memory),
            driver: Some(driver.to_owned()),
        };
        let gpus = [gpu(0, "NVIDIA L4", 23_034)];
        let met = outcomes(&with(1, "l4", 24, "570.86"), State::Ready, Some(1), &gpus);
        assert_eq!(met, [Outcome::Passed; 6]);
        let missed = outcomes(&with(8, "L40S", 48, "580"), State::Ready, Some(1), &gpus);
        assert_eq!(missed[1..5], [Outcome::Failed; 4]);
    }

    #[test]
    fn nothing_is_judged_of_a_driver_that_does_not_answer() {
        let expected = Expected { gpus: Some(1), ..Expected::default() };
        let all = outcomes(&expected, State::Hung, None, &[]);
        assert_eq!(all[..3], [Outcome::Failed, Outcome::Unknown, Outcome::Unknown]);
    }

    #[test]
    fn a_gpu_that_is_counted_and_cannot_be_opened_fails_the_count() {
        let all = outcomes(&Expected::default(), State::Ready, Some(2), &[gpu(0, "NVIDIA L4", 23_034)]);
        assert_eq!(all[2], Outcome::Failed);
    }

    #[test]
    fn a_gpu_whose_name_or_memory_cannot_be_read_is_not_the_wrong_one() {
        let expected = Expected { model: Some("L4".to_owned()), memory_gib: Some(24), ..Expected::default() };
        let gpus = [gpu(0, "NVIDIA L4", 23_034), Gpu { name: String::new(), memory: None, ..gpu(1, "", 0) }];
        assert_eq!(outcomes(&expected, State::Ready, Some(2), &gpus)[3..5], [Outcome::Unknown; 2]);
    }

    #[test]
    fn a_driver_that_counts_no_gpu_fails_the_count_unless_none_is_expected() {
        let of = |gpus, counted| outcomes(&Expected { gpus, ..Expected::default() }, State::Ready, counted, &[])[2];
        assert_eq!([of(None, Some(0)), of(Some(8), Some(0))], [Outcome::Failed; 2]);
        assert_eq!([of(Some(0), Some(0)), of(None, None)], [Outcome::Passed, Outcome::Unknown]);
    }

    #[test]
    fn expectations_that_nothing_meets_are_refused() {
        assert!(model("RTX PRO 6000").is_ok() && driver("570.86.15").is_ok());
        assert!(["", " ", "-"].iter().all(|text| model(text).is_err()));
        assert!(["", "banana", "570.", "r570"].iter().all(|text| driver(text).is_err()));
    }

    #[test]
    fn a_model_is_matched_by_whole_words() {
        assert!(names("NVIDIA A100-SXM4-80GB", "A100"));
        assert!(!names("NVIDIA A100-SXM4-80GB", "A10"));
        assert!(names("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx pro 6000"));
        assert!(!names("NVIDIA L4", ""));
    }
}
