//! One watch, kept up for ever.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use http::{Request, StatusCode};
use kube::client::Body;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};
use tower::service_fn;
use tracing::{debug, info, warn};

use super::super::client::in_words;
use super::watch_health::WatchHealth;

/// How long one watch request runs. The server ends it then and the next one goes on where it ended; that is cheap, and it proves
/// twice a minute that a watch which tells nothing still stands.
const WATCH_SECONDS: u32 = 30;

/// Objects of one page of a list: the page is in memory as text while it is read, a few kilobytes each.
const PAGE: u32 = 250;

/// How long a watch may fail before everything is listed anew. A server that was restored from a backup does not know where we were,
/// and says so with errors that look like any other.
const START_OVER: Duration = Duration::from_mins(2);

/// How a kind is listed and watched; narrow it by labels or fields.
pub fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// How long the server may take to begin its answer, to a list or a watch.
const ANSWER: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
#[error("no answer within {}s", ANSWER.as_secs())]
struct NoAnswer;

/// Events of all objects that `config` selects. Failures are retried with backoff and told to `pulse` only.
pub fn follow<K>(
    client: &Client,
    config: watcher::Config,
    pulse: Arc<WatchHealth>,
) -> impl Stream<Item = Event<K>> + Send + use<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let api = Api::<K>::all(observed(client, Arc::clone(&pulse)));
    let watch = Watch { events: begin(&api, &config), begun: Instant::now(), api, config, pulse };
    stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) })
}

struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    pulse: Arc<WatchHealth>,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    begun: Instant,
}

fn begin<K>(api: &Api<K>, config: &watcher::Config) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api.clone(), config.clone()).default_backoff().boxed()
}

impl<K> Watch<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Option<Event<K>> {
        loop {
            let watched = self.pulse.watched();
            match self.events.next().await? {
                Ok(event) => {
                    match &event {
                        Event::Init => {}
                        Event::InitApply(_) => self.pulse.heard(),
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => stands(&self.pulse),
                    }
                    return Some(event);
                }
                // The server forgets what is long ago: all is listed anew, as it is now and then.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                    debug!(%watched, "a Kubernetes watch begins anew");
                }
                Err(error) => {
                    let error = in_words(&error);
                    if self.pulse.broke(error.clone()) {
                        warn!(%watched, error, "a Kubernetes watch broke; keeping the last facts");
                    } else {
                        debug!(%watched, error, "a Kubernetes watch is still broken");
                    }
                    if self.pulse.broken_for() > START_OVER && self.begun.elapsed() > START_OVER {
                        self.begun = Instant::now();
                        self.events = begin(&self.api, &self.config);
                    }
                }
            }
        }
    }
}

fn stands(pulse: &WatchHealth) {
    if let Some(gap) = pulse.stands() {
        info!(watched = %pulse.watched(), seconds = gap.as_secs(), "a Kubernetes watch works again");
    }
}

/// A client that tells `pulse` when the server accepts a watch: the watcher itself keeps silent about that, and so a watch of
/// something that does not change could not be told from a broken one.
fn observed(client: &Client, pulse: Arc<WatchHealth>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (client, pulse) = (client.clone(), Arc::clone(&pulse));
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
            let answer = timeout(ANSWER, client.send(request)).await;
            let response = answer.map_err(|_| kube::Error::Service(NoAnswer.into()))??;
            if is_watch && response.status() == StatusCode::OK {
                stands(&pulse);
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}
