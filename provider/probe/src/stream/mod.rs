//! The stream to the provider: rounds and events up until they are acknowledged, *confirm quiet now* down.
//!
//! # Guarantees
//! What is in the [`Outbox`] is sent until the provider has acknowledged it, over as many streams as that takes. A question of the
//! provider is answered within 2 s, if only with "cannot tell".

mod backoff;
mod link;
mod options;
mod tls;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use stoker_proto::probe::probe_client::ProbeClient;
use stoker_proto::probe::{ConfirmQuiet, FromProbe, Hello, QuietAnswer, from_probe, to_probe};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

pub use backoff::Backoff;
pub use link::LinkError;
pub use options::{Access, Settings, SettingsFaults, StreamArgs};
pub use tls::TlsMistake;

use crate::metrics::Page;
use crate::outbox::{Confirm, Fill, Item, Outbox};

/// How long the sampler may take to answer a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long the provider may take to open a stream.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take to acknowledge something. A provider that is that slow, or gone behind a proxy that is not, is left.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(30);
/// After how long a stream that the provider ended in good order is reopened at once.
const STOOD_WELL: Duration = Duration::from_mins(1);
/// Messages on their way to the transport. What is not there yet is in the outbox.
const UNDER_WAY: usize = 8;

/// How the stream stands, for metrics. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Status(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    connected: AtomicBool,
    opened: AtomicU64,
    failed: AtomicU64,
    why: Mutex<Option<String>>,
}

impl Status {
    /// Whether a stream stands.
    pub fn connected(&self) -> bool {
        self.0.connected.load(Ordering::Relaxed)
    }

    /// Streams that were opened since the start.
    pub fn opened(&self) -> u64 {
        self.0.opened.load(Ordering::Relaxed)
    }

    /// Streams that broke, and tries that came to none.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Why the last of them did, with all that is behind it; `None` before the first.
    pub fn why(&self) -> Option<String> {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fails(&self, ended: &Ended) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        let causes = std::iter::successors(std::error::Error::source(ended), |cause| (*cause).source());
        let why = causes.fold(ended.to_string(), |why, cause| format!("{why}: {cause}"));
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

/// Adds how the stream stands and what waits for it.
pub fn metrics(page: &mut Page, status: &Status, waiting: Fill) {
    page.gauge("stoker_probe_stream_connected", "Whether a stream to the provider is open.")
        .add(&[], u8::from(status.connected()));
    page.counter("stoker_probe_streams_opened_total", "Streams to the provider that were opened.").add(&[], status.opened());
    page.counter("stoker_probe_streams_failed_total", "Streams that broke, and failed attempts to open one.")
        .add(&[], status.failed());
    page.gauge("stoker_probe_waiting", "What the provider has not acknowledged yet.")
        .add(&[("what", "rounds")], waiting.rounds)
        .add(&[("what", "events")], waiting.events);
    page.counter("stoker_probe_rounds_thinned_total", "Rounds dropped while the provider was unreachable.")
        .add(&[], waiting.thinned);
    page.counter("stoker_probe_events_dropped_total", "Events dropped while the provider was unreachable.")
        .add(&[], waiting.dropped);
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Tls(#[from] TlsMistake),
    #[error("the provider ended the stream: {} ({:?})", .0.message(), .0.code())]
    Refused(#[source] Box<tonic::Status>),
    #[error("the provider ended the stream")]
    Closed,
    #[error("the provider did not {what} within {} s", within.as_secs())]
    Late { what: &'static str, within: Duration },
    #[error("the provider's first message is not the list of what it knows")]
    Unexpected,
}

/// What a stream ended with that did not break.
enum Done {
    /// Told to stop.
    Stopped,
    /// The files it was opened with have changed.
    Renew,
    /// The provider ended it in good order, as it does once an hour.
    Aged,
}

/// Keeps a stream to the provider until `stop`.
pub async fn run(settings: Settings, outbox: Outbox, confirms: mpsc::Sender<Confirm>, status: Status, stop: CancellationToken) {
    // A library may bring another one, and then none is the default. Refused where one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut backoff = settings.backoff.clone();
    loop {
        let stream = Stream { settings: &settings, outbox: &outbox, confirms: &confirms, status: &status };
        let ended = stop.run_until_cancelled(stream.keep(&mut backoff)).await;
        status.0.connected.store(false, Ordering::Relaxed);
        match ended.unwrap_or(Ok(Done::Stopped)) {
            Ok(Done::Stopped) => return,
            Ok(Done::Renew) => tracing::info!("the certificate or token was renewed; reopening the stream"),
            Ok(Done::Aged) => tracing::info!("the provider asks for a new stream; reopening it"),
            Err(ended) => {
                status.fails(&ended);
                let wait = backoff.next_wait();
                tracing::warn!(
                    error = &ended as &dyn std::error::Error,
                    waiting = ?outbox.fill(),
                    "no stream to the provider; next try in {wait:?}"
                );
                if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                    return;
                }
            }
        }
    }
}

struct Stream<'a> {
    settings: &'a Settings,
    outbox: &'a Outbox,
    confirms: &'a mpsc::Sender<Confirm>,
    status: &'a Status,
}

impl Stream<'_> {
    /// Opens a stream and keeps it as long as it stands.
    async fn keep(&self, backoff: &mut Backoff) -> Result<Done, Ended> {
        let files = self.settings.access.read().await?;
        let (up, requests) = mpsc::channel(UNDER_WAY);
        // There is room: it is new.
        let _ = up.try_send(message(from_probe::Kind::Hello(self.hello())));
        let request = link::request(ReceiverStream::new(requests), &files);
        let channel = link::connect(&self.settings.provider, &self.settings.access, &files).await?;
        let mut client = ProbeClient::new(channel);
        let opened = timeout(OPEN_WITHIN, async {
            let mut answers = client.watch(request).await.map_err(|status| self.not_opened(status))?.into_inner();
            let first = answers.message().await.map_err(|status| self.not_opened(status))?.ok_or(Ended::Closed)?;
            Ok::<_, Ended>((answers, first))
        });
        let late = Ended::Late { what: "open a stream", within: OPEN_WITHIN };
        let (mut answers, first) = opened.await.map_err(|_| late)??;
        let Some(to_probe::Kind::Ack(known)) = first.kind else { return Err(Ended::Unexpected) };
        self.status.0.connected.store(true, Ordering::Relaxed);
        self.status.0.opened.fetch_add(1, Ordering::Relaxed);
        let opened = Instant::now();
        tracing::info!(provider = %self.settings.provider, known_round = known.round, known_event = known.event, "stream opened");

        let mut sent = self.outbox.begin(known);
        let mut next = self.outbox.next(&mut sent);
        let mut unanswered: FuturesUnordered<_> = FuturesUnordered::new();
        let mut due: Option<Instant> = None;
        let mut look = tokio::time::interval_at(Instant::now() + self.settings.look_every, self.settings.look_every);
        loop {
            tokio::select! {
                answer = answers.message() => {
                    let Some(answer) = answer.map_err(refused)? else {
                        return if opened.elapsed() < STOOD_WELL { Err(Ended::Closed) } else { Ok(Done::Aged) };
                    };
                    match answer.kind {
                        Some(to_probe::Kind::Ack(ack)) => {
                            self.outbox.acknowledge(ack);
                            backoff.stood();
                            due = self.outbox.waits_for(sent).then(|| Instant::now() + ACKNOWLEDGE_WITHIN);
                        }
                        Some(to_probe::Kind::ConfirmQuiet(ConfirmQuiet { nonce })) => unanswered.push(self.ask(nonce)),
                        // Of a provider that is newer than this.
                        None => {}
                    }
                }
                Some(answer) = unanswered.next() => {
                    let message = message(from_probe::Kind::Quiet(answer));
                    up.send_timeout(message, ANSWER_WITHIN).await.map_err(|_| Ended::Closed)?;
                }
                permit = up.reserve(), if next.is_some() => {
                    let permit = permit.map_err(|_| Ended::Closed)?;
                    if let Some(item) = next.take() {
                        permit.send(message(item.into()));
                        due.get_or_insert_with(|| Instant::now() + ACKNOWLEDGE_WITHIN);
                    }
                    next = self.outbox.next(&mut sent);
                }
                () = self.outbox.news(), if next.is_none() => next = self.outbox.next(&mut sent),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    return Err(Ended::Late { what: "acknowledge", within: ACKNOWLEDGE_WITHIN });
                }
                _ = look.tick() => {
                    if self.settings.access.renews() && self.settings.access.read().await.is_ok_and(|now| now != files) {
                        return Ok(Done::Renew);
                    }
                }
            }
        }
    }

    /// Why a stream was not opened. What the provider thinks of a certificate comes after the handshake, and ends the first exchange.
    fn not_opened(&self, status: tonic::Status) -> Ended {
        match tls::mistake(&status, &self.settings.provider, &self.settings.access) {
            Some(mistake) => mistake.into(),
            None => refused(status),
        }
    }

    fn hello(&self) -> Hello {
        let Settings { node, boot_id, session, period, .. } = self.settings;
        Hello {
            node: node.clone(),
            boot_id: boot_id.clone(),
            session: *session,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            period_ms: u32::try_from(period.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// Asks the sampler.
    async fn ask(&self, nonce: u64) -> QuietAnswer {
        let (answer, answered) = oneshot::channel();
        let asked = self.confirms.try_send(Confirm { nonce, answer });
        let round = match asked {
            Ok(()) => timeout(ANSWER_WITHIN, answered).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        QuietAnswer { nonce, round }
    }
}

impl From<Item> for from_probe::Kind {
    fn from(item: Item) -> Self {
        match item {
            Item::Round(round) => Self::Round(round),
            Item::Event(event) => Self::Event(event),
        }
    }
}

const fn message(kind: from_probe::Kind) -> FromProbe {
    FromProbe { kind: Some(kind) }
}

fn refused(status: tonic::Status) -> Ended {
    Ended::Refused(Box::new(status))
}
