//! `stoker top`: pools and nodes of the running service on one live screen.

mod columns;
mod draw;
mod screen;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use jiff::SignedDuration;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use stoker_core::base::ids::RecordId;
use stoker_core::base::text::with_causes;
use stoker_journal::Place;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::args::{JournalArg, duration};
use super::exit::{CliError, Exit};
use super::side_port::{SidePort, UrlArg};
use super::{explain, out};
use screen::{Answer, Effect, Input, Readiness, Screen};

/// Shows pools and nodes of the running service on one live screen: floors, budgets, GPU use, verdicts, $/h and holders.
///
/// It asks the side port of the service, which must be started with `--debug`. Keys sort, filter and explain. Without a terminal, and
/// with --once, it prints one picture as text. What is unknown is shown as -.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    service: UrlArg,
    /// How often the service is asked
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    every: SignedDuration,
    /// Print one picture and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    journal: JournalArg,
}

/// How often ages are brought up to date.
const TICK: Duration = Duration::from_secs(1);

/// Inputs that may wait.
const WAITING: usize = 64;

/// Carries the command out.
pub(super) async fn run(args: &TopArgs) -> Result<Exit, CliError> {
    let side_port = args.service.side_port()?;
    if args.once || !io::stdout().is_terminal() {
        let mut screen = Screen::new(side_port.shown(), false, (u16::MAX, u16::MAX));
        screen.step(Input::Answered(Ok(Box::new(ask(&side_port).await?))), Duration::ZERO);
        out::write(&draw::plain(&screen))?;
        return Ok(Exit::Done);
    }
    let journal = args.journal.given()?;
    let mut terminal = ratatui::try_init().map_err(CliError::failed("the terminal cannot be drawn on"))?;
    let ended = live(&mut terminal, side_port, journal, args).await;
    ratatui::restore();
    ended.map_err(CliError::failed("the terminal cannot be drawn on"))?;
    Ok(Exit::Done)
}

/// What is asked each time. A standby replica has no picture, and says who leads.
async fn ask(side_port: &SidePort) -> Result<Answer, CliError> {
    let (status, body) = side_port.get("/readyz").await?;
    if status == StatusCode::NOT_FOUND {
        return Err(CliError::Usage(format!(
            "{}/readyz is not served: this is not the side port of a Stoker",
            side_port.shown()
        )));
    }
    let ready = Readiness::of(status.is_success(), &String::from_utf8_lossy(&body));
    match side_port.debug("/debug/top").await {
        Ok(picture) => Ok(Answer { picture, ready }),
        Err(_) if !ready.ready => {
            Err(CliError::other(format!("{} is not ready: {}", side_port.shown(), ready.faults.join("; "))))
        }
        Err(error) => Err(error),
    }
}

/// Draws until somebody quits.
async fn live(terminal: &mut DefaultTerminal, side_port: SidePort, journal: Option<Place>, args: &TopArgs) -> io::Result<()> {
    let (inputs, mut input) = mpsc::channel(WAITING);
    let begun = Instant::now();
    let size = terminal.size()?;
    let mut screen = Screen::new(side_port.shown(), journal.is_some(), (size.width, size.height));
    let keys = inputs.clone();
    std::thread::spawn(move || read_keys(&keys));
    tokio::spawn(keep_asking(side_port, args.every.unsigned_abs(), inputs.clone()));
    tokio::spawn(end_on_signal(inputs.clone()));
    let mut tick = tokio::time::interval(TICK);
    loop {
        terminal.draw(|frame| draw::draw(&screen, frame))?;
        let mut next = tokio::select! {
            next = input.recv() => next,
            _ = tick.tick() => Some(Input::Tick),
        };
        // What has come meanwhile is drawn with it.
        while let Some(input_now) = next {
            match screen.step(input_now, begun.elapsed()) {
                Effect::None => {}
                Effect::Quit => return Ok(()),
                Effect::Explain(record) => drop(tokio::spawn(read_journal(record, journal.clone(), inputs.clone()))),
            }
            next = input.try_recv().ok();
        }
    }
}

/// Hands keys and sizes over, until the terminal is gone.
fn read_keys(inputs: &mpsc::Sender<Input>) {
    loop {
        let next = match event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(width, height)) => Input::Resized(width, height),
            Ok(_) => continue,
            Err(_) => Input::Quit,
        };
        let is_over = matches!(next, Input::Quit);
        if inputs.blocking_send(next).is_err() || is_over {
            return;
        }
    }
}

async fn keep_asking(side_port: SidePort, every: Duration, inputs: mpsc::Sender<Input>) {
    loop {
        let answer = ask(&side_port).await.map(Box::new).map_err(|error| with_causes(&error));
        if inputs.send(Input::Answered(answer)).await.is_err() {
            return;
        }
        tokio::time::sleep(every).await;
    }
}

/// A process that a signal ends leaves the terminal as it found it.
async fn end_on_signal(inputs: mpsc::Sender<Input>) {
    if let (Ok(mut end), Ok(mut gone)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
        tokio::select! { _ = end.recv() => {}, _ = gone.recv() => {} }
        let _ = inputs.send(Input::Quit).await;
    }
}

async fn read_journal(record: RecordId, journal: Option<Place>, inputs: mpsc::Sender<Input>) {
    let Some(journal) = journal else { return };
    let text = explain::text(&record.to_string(), journal).await.unwrap_or_else(|error| with_causes(&error));
    let _ = inputs.send(Input::Explained(record, text)).await;
}
