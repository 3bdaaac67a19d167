//! The console: read-only pages for people with a browser, on the side port or on an address of their own.
//!
//! Pages are drawn here, work without a script, and load nothing from another host. A script keeps them up to date over server-sent
//! events. Whatever stands in names and labels comes out as text.

mod access;
mod assets;
mod beat;
mod draw;
mod frame;
mod history;
mod page;
mod pages;
mod text;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures::{Stream, StreamExt as _, stream};
use maud::Markup;
use stoker_core::policy::Policy;
use stoker_journal::Reader;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub use access::NoAccess;
pub(crate) use access::{Access, Admission};
pub use draw::text_table;
pub use text::{Answer, ConsoleText, Day, Decision, Money};

use self::beat::{BEAT, Beat, Drawn};
use self::history::{History, Sample};
use self::page::{Page, form_value};
use self::pages::money::{Kept, Made};
use crate::api::side::{Condition, LONGEST_ANSWER};
use crate::clock::Clock;
use crate::listener::{PeerInfo, Seldom, TlsFiles};
use crate::publish::picture::Picture;

/// Pages may load what this program serves, and nothing else; no script and no style stands in a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// How long a stream of updates lasts: its browser opens another before the connection is closed.
const STREAM: Duration = LONGEST_ANSWER.saturating_sub(Duration::from_secs(6));

/// After how long a browser opens the next stream.
const AGAIN: Duration = Duration::from_secs(1);

/// Longest form: a token.
const LONGEST_FORM: usize = 8 << 10;

/// How long whoever showed a wrong token waits for the answer. An address has but half of the connections.
const WRONG_TOKEN: Duration = Duration::from_secs(1);

/// How long the page of money waits for a report that is not there yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the console is served.
#[derive(Debug, Clone)]
pub struct ConsoleOptions {
    /// File with the token that opens it; read again for each request. Without one, only this machine may read, or who has a certificate.
    pub token_file: Option<PathBuf>,
    /// An address of its own, and the certificates there; on the side port when absent.
    pub listener: Option<(SocketAddr, TlsFiles)>,
    /// Whom the certificates of browsers must name, where they are asked for; empty is anyone.
    pub clients: Arc<[String]>,
    /// Puts the journal and the policy into words.
    pub text: Arc<dyn ConsoleText>,
}

/// What the console shows.
pub(crate) struct Sources {
    /// Pools and nodes.
    pub(crate) picture: Arc<dyn Fn() -> Picture + Send + Sync>,
    /// Every condition.
    pub(crate) conditions: Arc<dyn Fn() -> Vec<Condition> + Send + Sync>,
    /// The policy in use.
    pub(crate) policy: Box<dyn Fn() -> Arc<Policy> + Send + Sync>,
    /// What is wrong with the policy file, where one is followed.
    pub(crate) policy_fault: Option<watch::Receiver<Option<String>>>,
    /// What was decided.
    pub(crate) journal: Reader,
    /// Puts both into words.
    pub(crate) text: Arc<dyn ConsoleText>,
    /// What time it is.
    pub(crate) clock: Clock,
}

/// The console.
pub struct Console {
    access: Arc<Access>,
    sources: Sources,
    beat: Mutex<Option<Arc<Beat>>>,
    history: History,
    money: Kept,
    /// Who may be sent updates.
    streams: Arc<Semaphore>,
    /// Keeps wrong tokens from filling the log.
    wrong_tokens: Seldom,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Console {
    /// A console for whom `access` lets in, with at most so many streams of updates: pages need connections too, and so does what else
    /// the port serves.
    pub(crate) fn new(access: Arc<Access>, sources: Sources, streams: usize) -> Self {
        let streams = Arc::new(Semaphore::new(streams.max(1)));
        Self {
            access,
            sources,
            beat: Mutex::default(),
            history: History::default(),
            money: Kept::default(),
            streams,
            wrong_tokens: Seldom::default(),
        }
    }

    /// Keeps what nodes cost, for the last hour's picture.
    pub(crate) async fn keep_history(&self) {
        loop {
            self.history.add(Sample::of(&self.beat().picture));
            sleep(history::EVERY).await;
        }
    }

    /// Logs that somebody showed another token, and lets them wait for the answer: who guesses gets few tries.
    async fn token_was_wrong(&self, peer: Option<&PeerInfo>) {
        if let Some(unlogged) = self.wrong_tokens.unlogged() {
            let remote = peer.map(|peer| peer.remote.to_string()).unwrap_or_default();
            tracing::warn!(remote, unlogged, "somebody showed the console a wrong token");
        }
        sleep(WRONG_TOKEN).await;
    }

    /// Its pages. Streams of updates end with `stop`.
    pub(crate) fn router(self: Arc<Self>, stop: CancellationToken) -> Router {
        let served = Served { console: self, stop };
        Router::new()
            .route("/console", get(whole))
            .route("/console/", get(whole))
            .route("/console/{page}", get(whole))
            .route("/console/decisions/{id}", get(whole))
            .route("/console/events", get(events))
            .route("/console/login", get(login_page).post(login))
            .route("/console/logout", post(logout))
            .route("/console/assets/{name}", get(asset))
            .layer(from_fn_with_state(served.clone(), guard))
            .layer(map_response(with_headers))
            .with_state(served)
    }

    /// What is shown now: at most a beat old.
    fn beat(&self) -> Arc<Beat> {
        // Whoever else asks meanwhile waits a few milliseconds, and gets the same.
        let mut last = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(beat) = last.as_ref().filter(|beat| beat.is_fresh()) {
            return Arc::clone(beat);
        }
        let begun = std::time::Instant::now();
        let (picture, conditions) = ((self.sources.picture)(), (self.sources.conditions)());
        let beat = Arc::new(Beat::begin(picture, conditions, begun.elapsed(), last.as_deref()));
        *last = Some(Arc::clone(&beat));
        beat
    }

    /// The main part of a page.
    async fn drawn(self: &Arc<Self>, page: &Page) -> (Arc<Beat>, Drawn) {
        let beat = self.beat();
        let cell = beat.cell(page);
        let drawn = cell
            .get_or_init(|| async {
                let (is_found, html) = self.draw(&beat, page).await;
                Drawn { is_found, html: html.into_string().into() }
            })
            .await;
        let drawn = drawn.clone();
        (beat, drawn)
    }

    async fn draw(self: &Arc<Self>, beat: &Beat, page: &Page) -> (bool, Markup) {
        let Sources { policy, policy_fault, journal, text, .. } = &self.sources;
        let html = match page {
            Page::Now => {
                let mut samples = self.history.samples();
                samples.push(Sample::of(&beat.picture));
                pages::now::main(beat, &samples)
            }
            Page::Nodes(asked) => pages::nodes::main(&beat.picture, asked),
            Page::Decisions { node } => {
                let found = text.decisions(journal.clone(), node.clone()).await;
                pages::decisions::main(found.as_deref().map_err(String::as_str), node.as_deref())
            }
            Page::Decision(id) => {
                let found = text.decision(journal.clone(), *id).await;
                let found = found.as_ref().map(Option::as_deref).map_err(String::as_str);
                return (found != Ok(None), pages::decisions::one(*id, found));
            }
            Page::Money => pages::money::main(self.money().await.as_ref()),
            Page::Policy => {
                let fault = policy_fault.as_ref().and_then(|fault| fault.borrow().clone());
                let shown = text.policy(&policy());
                pages::policy::main(shown.as_deref().map_err(String::as_str), fault.as_deref())
            }
        };
        (true, html)
    }

    /// The last report. Whoever comes first begins one, and waits a little for it.
    async fn money(self: &Arc<Self>) -> Option<Made> {
        let (last, is_due) = self.money.last();
        if !is_due {
            return last;
        }
        let console = Arc::clone(self);
        let making = tokio::spawn(async move {
            let (begun, at) = (Instant::now(), console.sources.clock.now());
            let Sources { policy, journal, text, .. } = &console.sources;
            // A report that panics is one that failed: another is made when it is due.
            let money = tokio::spawn(text.money(journal.clone(), policy(), at)).await;
            let money = money.unwrap_or_else(|error| Err(error.to_string())).map(Arc::new);
            console.money.keep(Made { at, money }, begun.elapsed());
        });
        if last.is_none() && tokio::time::timeout(PATIENCE, making).await.is_ok() {
            return self.money.last().0;
        }
        last
    }
}

/// What the requests share.
#[derive(Clone)]
struct Served {
    console: Arc<Console>,
    stop: CancellationToken,
}

async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets a request through, or says what it lacks.
async fn guard(State(served): State<Served>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    // Whoever has no token yet sees the page that asks for it.
    let is_open = path == "/console/login" || path.starts_with("/console/assets/");
    let is_browser = accepts_html(request.headers());
    let (console, headers) = (Arc::clone(&served.console), request.headers().clone());
    let peer = request.extensions().get::<PeerInfo>().cloned();
    let admission = if is_open {
        console.access.host(&headers, peer.as_ref())
    } else {
        let peer = peer.clone();
        // A file is read.
        let admitted = tokio::task::spawn_blocking(move || console.access.admit(&headers, peer.as_ref()));
        admitted.await.unwrap_or_else(|error| Admission::Unknown(error.to_string()))
    };
    match admission {
        Admission::Granted => next.run(request).await,
        Admission::TokenMissing if is_browser => Redirect::to("/console/login").into_response(),
        Admission::TokenMissing | Admission::TokenWrong => {
            if admission == Admission::TokenWrong {
                served.console.token_was_wrong(peer.as_ref()).await;
            }
            let cure = "the console needs the token: send `Authorization: Bearer TOKEN`, or sign in at /console/login\n";
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], cure).into_response()
        }
        Admission::OtherClient => {
            let why = "Its name is not among those of --console-client, or it is that of a probe.";
            (StatusCode::FORBIDDEN, Html(frame::refused("Another certificate", why).into_string())).into_response()
        }
        Admission::OtherHost => {
            let why = "The console without a token answers to localhost, 127.0.0.1 and [::1] alone: open it by one of these names, or \
                       give --console-token-file.";
            (StatusCode::MISDIRECTED_REQUEST, Html(frame::refused("Another name", why).into_string())).into_response()
        }
        Admission::Unknown(_) => {
            let page = frame::refused("The token cannot be read", "The log says why.");
            (StatusCode::SERVICE_UNAVAILABLE, Html(page.into_string())).into_response()
        }
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

async fn whole(State(served): State<Served>, uri: Uri) -> Response {
    let console = &served.console;
    let Some(page) = Page::of(uri.path(), uri.query().unwrap_or_default()) else {
        let page = frame::refused(
            "No such page",
            "There are /console, /console/nodes, /console/decisions, /console/money and \
                                                   /console/policy.",
        );
        return (StatusCode::NOT_FOUND, Html(page.into_string())).into_response();
    };
    let (beat, drawn) = console.drawn(&page).await;
    let html = frame::whole(&beat.picture.cluster, &page, &drawn.html, console.access.has_token());
    let status = if drawn.is_found { StatusCode::OK } else { StatusCode::NOT_FOUND };
    (status, Html(html.into_string())).into_response()
}

/// Sends the main part of a page whenever it has changed.
async fn events(State(served): State<Served>, uri: Uri) -> Response {
    let of = form_value(uri.query().unwrap_or_default().as_bytes(), "of").unwrap_or_default();
    let (path, query) = of.split_once('?').unwrap_or((&of, ""));
    let Some(page) = Page::of(path, query) else {
        return (StatusCode::NOT_FOUND, "of: names no page of the console\n").into_response();
    };
    let Ok(permit) = Arc::clone(&served.console.streams).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many browsers follow the console: close some\n").into_response();
    };
    let updates = updates(Arc::clone(&served.console), page, Instant::now() + STREAM);
    let held = updates.map(move |event| {
        let _ = &permit;
        Ok::<_, Infallible>(event)
    });
    Sse::new(held.take_until(served.stop.cancelled_owned())).into_response()
}

fn updates(console: Arc<Console>, page: Page, until: Instant) -> impl Stream<Item = Event> {
    let first = stream::once(async { Event::default().retry(AGAIN) });
    let rest = stream::unfold((console, page, None::<Arc<str>>), move |(console, page, mut last)| async move {
        loop {
            if last.is_some() {
                if Instant::now() + BEAT > until {
                    return None;
                }
                sleep(BEAT).await;
            }
            let (_, Drawn { html, .. }) = console.drawn(&page).await;
            if last.as_ref() != Some(&html) {
                // A text is JSON, and JSON has no line end, which would end the event.
                let event = Event::default().event("main").json_data(&*html).ok()?;
                last = Some(html);
                return Some((event, (console, page, last)));
            }
        }
    });
    first.chain(rest)
}

async fn login_page(State(served): State<Served>) -> Response {
    if served.console.access.has_token() {
        Html(frame::login(None).into_string()).into_response()
    } else {
        Redirect::to("/console").into_response()
    }
}

async fn login(State(served): State<Served>, peer: Option<Extension<PeerInfo>>, headers: HeaderMap, form: Bytes) -> Response {
    if form.len() > LONGEST_FORM {
        return (StatusCode::PAYLOAD_TOO_LARGE, "a form of a token is shorter\n").into_response();
    }
    let token = form_value(&form, "token").unwrap_or_default();
    let console = Arc::clone(&served.console);
    // A file is read.
    let session = tokio::task::spawn_blocking(move || console.access.session(&token, &headers));
    let said = |status: StatusCode, fault: &str| (status, Html(frame::login(Some(fault)).into_string())).into_response();
    match session.await.map_err(|error| error.to_string()).flatten() {
        Ok(Some(cookie)) => ([(header::SET_COOKIE, cookie)], Redirect::to("/console")).into_response(),
        Ok(None) => {
            served.console.token_was_wrong(peer.as_deref()).await;
            said(StatusCode::FORBIDDEN, "That is not the token.")
        }
        Err(_) => said(StatusCode::SERVICE_UNAVAILABLE, "The token cannot be read; the log says why."),
    }
}

async fn logout(State(served): State<Served>, headers: HeaderMap) -> Response {
    ([(header::SET_COOKIE, served.console.access.ended(&headers))], Redirect::to("/console/login")).into_response()
}

async fn asset(Path(name): Path<String>) -> Response {
    match assets::named(&name) {
        Some(asset) => {
            ([(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "private, max-age=300")], asset.text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

#[cfg(test)]
mod tests;
