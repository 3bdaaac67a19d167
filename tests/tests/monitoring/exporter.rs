//! A GPU exporter of a few lines: DCGM's names, on a loopback port.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::task::JoinHandle;

/// What one GPU of a node reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gpu {
    /// In percent.
    pub(super) utilization: u32,
    /// Share of multiprocessors at work, from 0 to 1.
    pub(super) sm: f64,
    /// In MiB.
    pub(super) used: u32,
    /// In MiB.
    pub(super) free: u32,
    /// In degrees Celsius.
    pub(super) temperature: u32,
    /// In watts.
    pub(super) power: u32,
    /// The last XID; nought for none.
    pub(super) xid: u32,
    /// Whether it is split in two instances, of which the first works as told and the second does nothing.
    pub(super) split: bool,
}

/// One level of a GPU.
type Level = fn(&Gpu) -> f64;

/// The exporter; it ends when dropped.
pub(super) struct Exporter {
    /// Where it listens.
    pub(super) address: SocketAddr,
    text: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts one that tells of no GPU.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let text = Arc::new(Mutex::new(String::new()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let answer =
            |State(text): State<Arc<Mutex<String>>>| async move { text.lock().map(|text| text.clone()).unwrap_or_default() };
        let app = Router::new().route("/metrics", get(answer)).with_state(Arc::clone(&text));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
        Ok(Self { address, text, task })
    }

    /// Tells of these GPUs from now on: by node, each node's in order.
    pub(super) fn tell(&self, nodes: &[(String, Vec<Gpu>)]) {
        let mut text = String::new();
        let metrics: [(&str, Level); 8] = [
            ("GPU_UTIL", |gpu| gpu.utilization.into()),
            ("FB_USED", |gpu| gpu.used.into()),
            ("FB_FREE", |gpu| gpu.free.into()),
            ("GPU_TEMP", |gpu| gpu.temperature.into()),
            ("POWER_USAGE", |gpu| gpu.power.into()),
            ("ENFORCED_POWER_LIMIT", |_| 300.0),
            ("XID_ERRORS", |gpu| gpu.xid.into()),
            ("SM_ACTIVE", |gpu| gpu.sm),
        ];
        for (name, level) in metrics {
            let family = if name == "SM_ACTIVE" { "PROF" } else { "DEV" };
            let _ = writeln!(text, "# TYPE DCGM_FI_{family}_{name} gauge");
            for (node, gpus) in nodes {
                for (index, gpu) in gpus.iter().enumerate() {
                    let labels =
                        format!("gpu=\"{index}\",UUID=\"GPU-{node}-{index}\",modelName=\"NVIDIA L4\",Hostname=\"{node}\"");
                    let instances = if name == "SM_ACTIVE" && gpu.split { &["1", "2"][..] } else { &[][..] };
                    for id in instances {
                        let level = if *id == "1" { level(gpu) } else { 0.0 };
                        let _ = writeln!(text, "DCGM_FI_PROF_SM_ACTIVE{{{labels},GPU_I_ID=\"{id}\"}} {level}");
                    }
                    // Of a split GPU the driver tells no utilization.
                    if instances.is_empty() && !(name == "GPU_UTIL" && gpu.split) {
                        let _ = writeln!(text, "DCGM_FI_{family}_{name}{{{labels}}} {}", level(gpu));
                    }
                }
            }
        }
        if let Ok(mut told) = self.text.lock() {
            *told = text;
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}
