//! Exporters shaped like DCGM's: what they write of a node is what its reading says.

#![expect(clippy::cast_precision_loss, reason = "levels far below what a float holds exactly")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use stoker_core::base::ids::GpuUuid;
use stoker_core::facts::reading::{GpuReading, Measured, MemoryLevel, NodeReading, Permille};

/// The name of a GPU.
pub(crate) fn gpu(index: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-0000-{index}")).unwrap()
}

/// A GPU that does nothing, of which only the usual is told.
pub(crate) fn idle(index: u32) -> GpuReading {
    GpuReading {
        index,
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        pci_bus_id: format!("00000000:0{index}:00.0"),
        utilization: Measured::Known(Permille::default()),
        memory: Measured::Known(MemoryLevel { used: 0, total: 81_559 << 20, reserved: 551 << 20 }),
        temperature_c: Measured::Known(30),
        ..GpuReading::default()
    }
}

/// What DCGM calls its fields.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Names {
    /// As dcgm-exporter's list of counters has them.
    Usual,
    /// As DCGM has renamed them.
    New,
}

/// What an exporter on `node` writes of a reading, in its own units; nothing of what is unknown.
pub(crate) fn dcgm(node: &str, reading: &NodeReading, names: Names) -> String {
    let mut text = String::new();
    let mut tell = |labels: &str, usual: &str, new: &str, value: Option<f64>| {
        let name = if names == Names::New { new } else { usual };
        if let Some(value) = value {
            writeln!(text, "DCGM_FI_{name}{{{labels}}} {value}").unwrap();
        }
    };
    for (uuid, one) in &reading.gpus {
        // Releases differ in how they write the node's name.
        let hostname = if names == Names::New { "hostname" } else { "Hostname" };
        let labels = format!(
            "gpu=\"{}\",UUID=\"{uuid}\",pci_bus_id=\"{}\",device=\"nvidia{}\",modelName=\"{}\",{hostname}=\"{node}\"",
            one.index, one.pci_bus_id, one.index, one.name
        );
        let mut level = |usual: &str, new: &str, value: Option<f64>| tell(&labels, usual, new, value);
        let share = |level: &Measured<Permille>, whole: f64| level.known().map(|share| f64::from(share.get()) / 1000.0 * whole);
        level("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", share(&one.utilization, 100.0));
        level("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", share(&one.sm_activity, 1.0));
        level("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", share(&one.memory_bandwidth, 1.0));
        level("DEV_ENC_UTIL", "DEV_ENC_UTIL", share(&one.codec, 100.0));
        for (name, value) in memory(&one.memory) {
            level(name, name, Some(value));
        }
        level("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", milli(&one.power_mw));
        level("DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", milli(&one.power_limit_mw));
        level("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", one.temperature_c.known().map(|celsius| f64::from(*celsius)));
        if let Some((sm, memory)) = one.clocks_mhz.known() {
            level("DEV_SM_CLOCK", "DEV_SM_CLOCK", Some(f64::from(*sm)));
            level("DEV_MEM_CLOCK", "DEV_MEM_CLOCK", Some(f64::from(*memory)));
        }
        level("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS", whole(&one.clock_limits));
        level("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_TOTAL_ENERGY_CONSUMPTION", whole(&one.energy_mj));
        if let Some(ecc) = one.ecc.known() {
            level("DEV_ECC_DBE_VOL_TOTAL", "DEV_ECC_DBE_VOL_TOTAL", Some(ecc.uncorrected_volatile as f64));
            level("DEV_ECC_SBE_VOL_TOTAL", "DEV_ECC_SBE_VOL_TOTAL", Some(ecc.corrected_volatile as f64));
            level("DEV_ECC_DBE_AGG_TOTAL", "DEV_ECC_DBE_AGG_TOTAL", Some(ecc.uncorrected_aggregate as f64));
        }
        if let Some(rows) = one.remapped_rows.known() {
            let told = |told: bool| f64::from(u8::from(told));
            level("DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL", Some(f64::from(rows.correctable)));
            level("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", Some(f64::from(rows.uncorrectable)));
            level("DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", Some(told(rows.failed)));
            level("DEV_ROW_REMAP_PENDING", "DEV_ROW_REMAP_PENDING", rows.pending.known().map(|pending| told(*pending)));
        }
        level("DEV_GET_GPU_RECOVERY_ACTION", "DEV_GPU_RECOVERY_ACTION", one.recovery_action.known().map(|a| f64::from(*a)));
        if let Some(pcie) = one.pcie.known() {
            level("DEV_PCIE_LINK_GEN", "DEV_PCIE_LINK_GEN", Some(f64::from(pcie.generation)));
            level("DEV_PCIE_LINK_WIDTH", "DEV_PCIE_LINK_WIDTH", Some(f64::from(pcie.width)));
            level("DEV_PCIE_MAX_LINK_GEN", "DEV_PCIE_MAX_LINK_GEN", Some(f64::from(pcie.max_generation)));
            level("DEV_PCIE_MAX_LINK_WIDTH", "DEV_PCIE_MAX_LINK_WIDTH", Some(f64::from(pcie.max_width)));
            level("DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", Some(pcie.replays as f64));
        }
        let persistence = one.persistence.known().map(|on| f64::from(u8::from(*on)));
        level("DEV_PERSISTENCE_MODE", "DEV_GPU_PERSISTENCE_MODE", persistence);
        let Some(mig) = one.mig.known() else { continue };
        level("DEV_MIG_MODE", "DEV_MIG_MODE", Some(f64::from(u8::from(mig.enabled))));
        for device in mig.devices.values() {
            let labels = format!("{labels},GPU_I_PROFILE=\"{}\",GPU_I_ID=\"{}\"", device.name, device.gpu_instance);
            let mut level = |usual: &str, new: &str, value: Option<f64>| tell(&labels, usual, new, value);
            level("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", share(&device.sm_activity, 1.0));
            level("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", share(&device.memory_bandwidth, 1.0));
            for (name, value) in memory(&device.memory) {
                level(name, name, Some(value));
            }
        }
    }
    text
}

fn memory(level: &Measured<MemoryLevel>) -> Vec<(&'static str, f64)> {
    let Some(MemoryLevel { used, total, reserved }) = level.known() else { return Vec::new() };
    let mib = |bytes: u64| (bytes >> 20) as f64;
    vec![("DEV_FB_USED", mib(*used)), ("DEV_FB_FREE", mib(total - used - reserved)), ("DEV_FB_RESERVED", mib(*reserved))]
}

fn milli(level: &Measured<u64>) -> Option<f64> {
    level.known().map(|milli| *milli as f64 / 1000.0)
}

fn whole(level: &Measured<u64>) -> Option<f64> {
    level.known().map(|level| *level as f64)
}

/// The exporters that Prometheus scrapes, by name.
#[derive(Clone)]
pub(crate) struct Exporters {
    pub(crate) addr: SocketAddr,
    texts: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Exporters {
    pub(crate) async fn start() -> Self {
        let texts: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let scrape = |State(texts): State<Arc<Mutex<BTreeMap<String, String>>>>, Path(name): Path<String>| async move {
            texts.lock().unwrap().get(&name).cloned().ok_or(StatusCode::SERVICE_UNAVAILABLE)
        };
        let app = Router::new().route("/{name}/metrics", get(scrape)).with_state(Arc::clone(&texts));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { addr, texts }
    }

    /// What an exporter writes from now on; one that is gone fails its scrapes.
    pub(crate) fn set(&self, name: &str, text: Option<&str>) {
        let mut texts = self.texts.lock().unwrap();
        match text {
            Some(text) => texts.insert(name.to_owned(), text.to_owned()),
            None => texts.remove(name),
        };
    }
}
