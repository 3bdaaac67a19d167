//! `--once`: a round for whoever asks, by hand or in a script.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use stoker_proto::probe::{Event, Gate, Round, gate};

use crate::cli::Format;
use crate::print;
use crate::sample::{Depth, Happened};
use crate::watch::{Tidings, Watch};

/// After which silence NVML is taken to hang. Where nothing keeps the driver loaded, opening a GPU takes it up to three seconds.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a round may take in all: 16 GPUs that are opened one after the other.
const MOST: Duration = Duration::from_mins(1);
/// Between the two samples, which activity is measured by.
const BETWEEN: Duration = Duration::from_millis(200);

/// Prints a round, and the events that came meanwhile. The code says whether the node is sound: the driver answers, and no gate failed.
///
/// # Errors
/// When standard output does not take it. A reader that has seen enough is no failure.
pub(crate) async fn run(mut watch: Watch, mut tidings: Tidings, format: Format) -> anyhow::Result<ExitCode> {
    watch.sample_while_answering(Depth::Due, SILENCE, MOST).await;
    tokio::time::sleep(BETWEEN).await;
    let round = watch.sample_while_answering(Depth::Full, SILENCE, MOST).await;
    let told = std::iter::from_fn(|| tidings.try_recv().ok());
    let events: String =
        told.filter_map(|happened| if let Happened::Event(event) = happened { Some(line(&event)) } else { None }).collect();
    let text = match format {
        Format::Json => format!("{}\n{events}", print::round(&round)),
        Format::Text => format!("{}{}\n{events}", print::text(&round), xids(&round, events.is_empty())),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.context("standard output could not be written")?,
    }
    Ok(if print::is_sound(&round) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(event: &Event) -> String {
    format!("{}\n", print::event(event))
}

/// What no event means, where there is `none`: no XID since the node began is not among it.
fn xids(round: &Round, none: bool) -> &'static str {
    let listens = |gate: &gate::Result| *gate == gate::Result::Passed;
    let events = round.gates.iter().find(|gate| gate.kind() == gate::Kind::Events).map(Gate::result);
    match (events.as_ref().is_some_and(listens), none) {
        (false, _) => "XIDs unknown: not every GPU is watched",
        (true, true) => "no XIDs during this run; a driver reports them as they happen, and only to a running probe",
        (true, false) => "XIDs during this run:",
    }
}
