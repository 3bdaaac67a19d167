//! The listeners: bound before anything runs, served last.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use stoker_journal::Reader;
use tokio::sync::watch;

use super::options::ListenerOptions;
use super::side::OfConsole;
use super::state::Setup;
use super::{Parts, ServeError, feeds, probes, side};
use crate::api::confirm::Confirm;
use crate::api::console::{Access, ConsoleOptions};
use crate::api::grpc::server::{spawn_expander, spawn_provider};
use crate::engine::EngineHandle;
use crate::listener::{Limits, Listener, Security, Shares, Tls, TlsFaults, TlsFiles, check_plaintext, raise_limit};
use crate::publish::telemetry::{Certificate, Metrics};

/// One of so many connections of the side port may follow the console: scrapes and kubelets have the rest. Of a listener of its own half may:
/// pages are loaded over the rest.
const FOLLOWERS_OF: usize = 4;
const FOLLOWERS_OF_OWN: usize = 2;

/// Listeners that take no calls yet.
pub(super) struct Bound {
    provider: (Listener, Option<Arc<Tls>>),
    expander: (Listener, Option<Arc<Tls>>),
    pub(super) probes: Option<probes::Opened>,
    side: Listener,
    console: Option<OpenedConsole>,
    /// The console's own listener; on the side port when absent.
    console_listener: Option<Listener>,
    /// How many may follow the console.
    console_streams: usize,
    pub(super) addresses: Addresses,
}

/// The console, where it is served.
struct OpenedConsole {
    options: ConsoleOptions,
    access: Access,
    /// Its own address; on the side port when absent.
    own: Option<(SocketAddr, Arc<Tls>)>,
}

/// Where the service listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) provider: SocketAddr,
    pub(super) expander: SocketAddr,
    pub(super) probes: Option<SocketAddr>,
    pub(super) http: SocketAddr,
    pub(super) console: Option<SocketAddr>,
}

/// Binds every listener.
pub(super) async fn bind(setup: &Setup, metrics: &Metrics) -> Result<Bound, ServeError> {
    let options = &setup.options;
    // Certificates are read first: a fault in one of them must not depend on which port is free.
    let (provider_tls, expander_tls) = (options.provider.load()?, options.expander.load()?);
    let console = options.console.clone().map(|console| open_console(console, setup)).transpose()?;
    let shares = share(options.probes.is_some());
    let limits = Limits::of(shares.provider);
    let provider = listen("the provider", &options.provider, provider_tls.as_ref(), limits, metrics).await?;
    let limits = Limits::of(shares.expander);
    let expander = listen("the expander", &options.expander, expander_tls.as_ref(), limits, metrics).await?;
    let probes = match &options.probes {
        Some(asked) => {
            let limits = Limits::of(shares.probes).proven_by_requests();
            Some(probes::open(asked.clone(), setup.client.as_ref(), limits, metrics).await?)
        }
        None => None,
    };
    let http = options.http;
    let own = console.as_ref().and_then(|console| console.own.clone());
    // A console with an address of its own takes half of the side port's connections.
    let (of_http, followers_of) = if own.is_some() { (shares.http / 2, FOLLOWERS_OF_OWN) } else { (shares.http, FOLLOWERS_OF) };
    let of_http = of_http.max(1);
    let console_listener = match own {
        Some((addr, tls)) => Some(bind_one("the console", addr, Security::Tls(tls), Limits::of(of_http), metrics).await?),
        None => None,
    };
    let side = bind_one("the side port", http, Security::Plaintext, Limits::of(of_http), metrics).await?;
    let addresses = Addresses {
        provider: provider.local_addr().unwrap_or(options.provider.listen),
        expander: expander.local_addr().unwrap_or(options.expander.listen),
        probes: probes.as_ref().map(|probes| probes.addr),
        http: side.local_addr().unwrap_or(http),
        console: console_listener.as_ref().and_then(|listener| listener.local_addr().ok()),
    };
    Ok(Bound {
        provider: (provider, provider_tls),
        expander: (expander, expander_tls),
        probes,
        side,
        console,
        console_listener,
        console_streams: of_http / followers_of,
        addresses,
    })
}

/// Who may read the console, and where it listens if not on the side port.
fn open_console(options: ConsoleOptions, setup: &Setup) -> Result<OpenedConsole, ServeError> {
    let own = options.listener.as_ref();
    let (addr, files) = own.map_or((setup.options.http, None), |(addr, files)| (*addr, Some(files)));
    let tls = files.map(|files| (files, &*options.clients));
    let access = Access::open(options.token_file.as_deref(), addr, tls, setup.options.clock.clone())?;
    let tls = files.map(|files| Tls::for_browsers(files.clone())).transpose()?;
    Ok(OpenedConsole { options, access, own: tls.map(|tls| (addr, tls)) })
}

/// How many connections each listener may have.
fn share(probes: bool) -> Shares {
    let open_files = raise_limit();
    let shares = Shares::of(open_files);
    if probes && !shares.is_ample() {
        tracing::warn!(
            open_files,
            "at most {} connections of probes are accepted: raise the limit of open files (of the container runtime, \
             LimitNOFILE in its systemd unit)",
            shares.probes
        );
    }
    shares
}

pub(super) async fn listen(
    name: &'static str,
    options: &ListenerOptions,
    tls: Option<&Arc<Tls>>,
    limits: Limits,
    metrics: &Metrics,
) -> Result<Listener, ServeError> {
    let security = if let Some(tls) = tls {
        Security::Tls(Arc::clone(tls))
    } else {
        check_plaintext(options.listen, options.allow_plaintext)?;
        Security::Plaintext
    };
    bind_one(name, options.listen, security, limits, metrics).await
}

async fn bind_one(
    name: &'static str,
    addr: SocketAddr,
    security: Security,
    limits: Limits,
    metrics: &Metrics,
) -> Result<Listener, ServeError> {
    let listener = Listener::bind(addr, security).await;
    let listener = listener.map_err(|source| ServeError::Listen { addr, door: name, source })?;
    let listener = listener.with_limits(limits).count_refused(metrics.handshakes_refused());
    Ok(listener.count_crowded(metrics.connections_refused()))
}

impl Bound {
    /// Takes calls from now on.
    pub(super) fn serve(
        self,
        setup: &Setup,
        feeds: &feeds::Started,
        handle: &EngineHandle,
        journal: Reader,
        parts: &mut Parts,
    ) {
        let Self {
            provider: (provider, provider_tls),
            expander: (expander, expander_tls),
            probes,
            side,
            console,
            console_listener,
            console_streams: streams,
            addresses: _,
        } = self;
        let probe_tls = probes.as_ref().and_then(|probes| probes.tls.clone());
        let console_tls = console.as_ref().and_then(|console| Some(Arc::clone(&console.own.as_ref()?.1)));
        let console = console.map(|OpenedConsole { options, access, own: _ }| OfConsole {
            access: Arc::new(access),
            text: options.text,
            journal,
            streams,
        });
        let certificates = watch_certificates(
            [
                (Certificate::Provider, provider_tls),
                (Certificate::Expander, expander_tls),
                (Certificate::Probes, probe_tls),
                (Certificate::Console, console_tls),
            ],
            parts,
        );
        let mut answers = side::state(
            std::mem::take(&mut parts.registry),
            handle.clone(),
            Arc::clone(&feeds.observer),
            feeds.policy_fault.clone(),
            feeds.cluster.as_ref().map(|cluster| cluster.feed.clone()),
            certificates,
            (feeds.demand.clone(), feeds.people.clone()),
            feeds.standings.clone(),
            parts.metrics.clone(),
            setup.rollup.clone(),
            setup.options.clock.clone(),
            setup.options.debug,
            console,
        );
        if let Some(listener) = console_listener
            && let Some(console) = answers.console.take()
        {
            let stopped = parts.inner.stop.clone();
            parts.inner.set.spawn(async move {
                crate::api::side::serve_console(listener, console, stopped).await;
                "the console"
            });
        }
        let stopped = parts.inner.stop.clone();
        parts.inner.set.spawn(async move {
            crate::api::side::serve(side, answers, stopped).await;
            "the side port"
        });
        let confirm = probes
            .is_some()
            .then(|| Arc::new(Confirm::new(Arc::clone(&feeds.readings), Arc::clone(&feeds.streams), parts.metrics.clone())));
        let (set, stop) = (&mut parts.calls.set, &parts.calls.stop);
        let clients = Arc::clone(&setup.options.provider.clients);
        spawn_provider(set, provider, handle.clone(), confirm, clients, parts.metrics.clone(), stop.clone());
        spawn_expander(set, expander, handle.clone(), parts.metrics.clone(), stop.clone());
        if let Some(probes) = probes {
            probes.spawn(set, &feeds.readings, &feeds.streams, stop.clone());
        }
    }
}

/// Follows the files of certificates; how each stands, by listener.
fn watch_certificates(
    certificates: [(Certificate, Option<Arc<Tls>>); 4],
    parts: &mut Parts,
) -> BTreeMap<&'static str, watch::Receiver<Option<String>>> {
    let mut statuses = BTreeMap::new();
    for (which, tls) in certificates {
        let Some(tls) = tls else { continue };
        parts.metrics.certificate(which, tls.not_after(), false);
        statuses.insert(which.as_str(), tls.status());
        let (stop, metrics) = (parts.inner.stop.clone(), parts.metrics.clone());
        let mut status = tls.status();
        let watched = Arc::clone(&tls);
        parts.inner.set.spawn(async move {
            let follow = async {
                while status.changed().await.is_ok() {
                    let fault = status.borrow_and_update().is_some();
                    metrics.certificate(which, tls.not_after(), fault);
                }
            };
            tokio::select! { () = watched.watch(stop.clone()) => {}, () = follow => {} }
            "a certificate watch"
        });
    }
    statuses
}

impl ListenerOptions {
    /// Its certificates.
    pub(super) fn load(&self) -> Result<Option<Arc<Tls>>, TlsFaults> {
        self.tls.clone().map(|files: TlsFiles| Tls::load(files)).transpose()
    }
}
