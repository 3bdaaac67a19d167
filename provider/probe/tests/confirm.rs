//! The provider's question whether a node is idle now is answered at once, and with what is known.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stoker_probe::gate::Expected;
use stoker_probe::outbox::{Confirm, Outbox};
use stoker_probe::processes::Proc;
use stoker_probe::sample::Settings;
use stoker_probe::watch::Watch;
use stoker_proto::probe::driver::State;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_question_is_answered_between_rounds() -> Result<()> {
    let settings = Settings {
        library: Some("/nowhere/libnvidia-ml.so.1".into()),
        proc: Proc::at(Path::new("/proc")),
        expected: Expected::default(),
        period: Duration::from_hours(1),
    };
    let (watch, tidings) = Watch::start(settings)?;
    let (ask, confirms) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(watch.run(Outbox::new(), tidings, confirms, stop.clone()));
    let from = Instant::now();
    for nonce in 1..=3 {
        let (answer, answered) = oneshot::channel();
        ask.send(Confirm { nonce, answer }).await?;
        let round = answered.await?;
        assert_eq!(round.driver.context("a driver")?.state(), State::LibraryMissing);
        assert_eq!(round.sequence, 0, "answers are not among the numbered rounds");
    }
    assert!(from.elapsed() < Duration::from_secs(2));
    drop(ask);
    stop.cancel();
    running.await?;
    Ok(())
}
