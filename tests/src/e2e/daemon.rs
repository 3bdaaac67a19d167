//! The probe on each GPU node, as a `DaemonSet` has it: a process over a driver that is scripted, with a metadata service of AWS beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nvidia_ml::scenario::Xid;
use nvidia_ml::{Gpu, Level, Scenario};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::process::Process;
use crate::gpu_node;

/// How often it is looked whether each node has its probe.
const EVERY: Duration = Duration::from_millis(200);

/// The probes of all nodes. All end when dropped.
pub struct Daemon {
    pods: Arc<Mutex<BTreeMap<String, Pod>>>,
    _tasks: JoinSet<()>,
}

/// How probes are started.
pub struct Template {
    /// The binary.
    pub program: PathBuf,
    /// Where they tell.
    pub provider: String,
    /// Where their files and logs go, in a folder for each node.
    pub dir: PathBuf,
}

/// One node's probe.
struct Pod {
    dir: PathBuf,
    driver: Scenario,
    notice: Arc<Mutex<Option<String>>>,
    metadata_url: String,
    /// Whether it is started anew when it has ended.
    restarts: bool,
    probe: Option<Process>,
}

impl Daemon {
    /// Sees to it that every node of Stoker's has a probe, and no other.
    pub fn start(cluster: Cluster, template: Template) -> Self {
        let pods: Arc<Mutex<BTreeMap<String, Pod>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let all = Arc::clone(&pods);
        tasks.spawn(async move {
            let mut services = JoinSet::new();
            let mut made = 0;
            loop {
                tokio::time::sleep(EVERY).await;
                let Ok(nodes) = cluster.ours().await else { continue };
                let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
                lock(&all).retain(|node, _| names.contains(node));
                for name in names {
                    if !lock(&all).contains_key(&name) {
                        made += 1;
                        match Pod::new(&template, &name, made, &mut services).await {
                            Ok(pod) => drop(lock(&all).insert(name.clone(), pod)),
                            Err(error) => eprintln!("no probe on {name}: {error:#}"),
                        }
                    }
                    if let Some(pod) = lock(&all).get_mut(&name)
                        && let Err(error) = pod.keep(&template, &name)
                    {
                        eprintln!("no probe on {name}: {error:#}");
                    }
                }
            }
        });
        Self { pods, _tasks: tasks }
    }

    fn with<T>(&self, node: &str, change: impl FnOnce(&mut Pod) -> anyhow::Result<T>) -> anyhow::Result<T> {
        change(lock(&self.pods).get_mut(node).with_context(|| format!("{node} has no probe"))?)
    }

    /// Has a node's GPU work so much.
    pub fn work(&self, node: &str, percent: u32) -> anyhow::Result<()> {
        let level = Level::Steady(f64::from(percent));
        self.script(node, |driver| driver.gpus.iter_mut().for_each(|gpu| gpu.utilization = Some(level.clone())))
    }

    /// A node's driver gives an XID, and its GPU is lost.
    pub fn break_down(&self, node: &str, xid: Xid) -> anyhow::Result<()> {
        self.script(node, |scenario| {
            scenario.xids.push(xid);
            scenario.gpus.iter_mut().for_each(|gpu| gpu.lost = true);
        })
    }

    fn script(&self, node: &str, change: impl FnOnce(&mut Scenario)) -> anyhow::Result<()> {
        self.with(node, |pod| {
            change(&mut pod.driver);
            Ok(pod.driver.write(&gpu_node::scenario(&pod.dir))?)
        })
    }

    /// The cloud says that it takes the node's machine back, so long from now.
    pub fn reclaim(&self, node: &str, within: SignedDuration) -> anyhow::Result<()> {
        let action = json!({ "action": "terminate", "time": Timestamp::now() + within });
        self.with(node, |pod| {
            *lock(&pod.notice) = Some(action.to_string());
            Ok(())
        })
    }

    /// Ends a node's probe with no warning. It comes back unless it is gone `for_good`.
    pub async fn kill(&self, node: &str, for_good: bool) -> anyhow::Result<()> {
        let probe = self.with(node, |pod| {
            pod.restarts = !for_good;
            pod.probe.take().context("it has ended already")
        })?;
        probe.kill().await
    }
}

impl Pod {
    async fn new(template: &Template, node: &str, number: u32, services: &mut JoinSet<()>) -> anyhow::Result<Self> {
        let dir = template.dir.join(node);
        std::fs::create_dir_all(&dir)?;
        let notice: Arc<Mutex<Option<String>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let metadata_url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(metadata).with_state(Arc::clone(&notice));
        services.spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { dir, driver: Scenario::of([Gpu::a100(number)]), notice, metadata_url, restarts: true, probe: None })
    }

    /// Starts the probe if it does not run and should.
    fn keep(&mut self, template: &Template, node: &str) -> anyhow::Result<()> {
        if !self.restarts || self.probe.as_mut().is_some_and(Process::runs) {
            return Ok(());
        }
        let mut command =
            gpu_node::probe(&template.program, &self.dir, node, &template.provider, Duration::from_secs(1), &self.driver)?;
        command.args(["--cloud", "aws", "--metadata-url", &self.metadata_url]);
        self.probe = Some(Process::spawn(command, &self.dir.join("log"))?);
        Ok(())
    }
}

/// As version 2 of AWS's instance metadata service: a token first, and a spot notice once there is one.
async fn metadata(State(notice): State<Arc<Mutex<Option<String>>>>, request: Request) -> Response {
    let found = match (request.method(), request.uri().path()) {
        (&Method::PUT, "/latest/api/token") => Some("token".to_owned()),
        (&Method::GET, "/latest/meta-data/spot/instance-action") => lock(&notice).clone(),
        _ => None,
    };
    found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

/// Each holder leaves it whole.
fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
