//! The flags that the autoscaler model shares with the real one, so that a test starts both with the same command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use jiff::SignedDuration;
use stoker_sim::model::{Expander, Generation, Settings};

/// A model of the Cluster Autoscaler, with the flags of the original. Those that it has no use for are read and do nothing.
#[derive(Debug, Parser)]
pub struct Flags {
    /// How the API server is reached.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Where the provider is and how it is spoken to.
    #[arg(long)]
    pub cloud_config: PathBuf,
    /// `host:port` of the expander.
    #[arg(long)]
    pub grpc_expander_url: String,
    /// Who signed the expander's certificate.
    #[arg(long)]
    pub grpc_expander_cert: PathBuf,
    /// The expanders, best first.
    #[arg(long, value_delimiter = ',')]
    pub expander: Vec<String>,
    /// The longest wait between loops.
    #[arg(long, value_parser = length, default_value = "10s")]
    pub scan_interval: SignedDuration,
    /// How long a node must be unneeded.
    #[arg(long, value_parser = length, default_value = "10m")]
    pub scale_down_unneeded_time: SignedDuration,
    /// How long no node goes after one came.
    #[arg(long, value_parser = length, default_value = "10m")]
    pub scale_down_delay_after_add: SignedDuration,
    /// How long a node must be not Ready.
    #[arg(long, value_parser = length, default_value = "20m")]
    pub scale_down_unready_time: SignedDuration,
    /// How long a machine may take to register.
    #[arg(long, value_parser = length, default_value = "15m")]
    pub max_node_provision_time: SignedDuration,
    /// How long a group is left alone after its first failure.
    #[arg(long, value_parser = length, default_value = "5m")]
    pub initial_node_group_backoff_duration: SignedDuration,
    /// Whether groups are raised to their least size.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub enforce_node_group_min_size: bool,
    /// Whether a loop that scaled is followed by the next at once.
    #[arg(long, action = ArgAction::Set, default_value_t = true)]
    pub frequent_loops_enabled: bool,
    /// Named at all: pods are helped whatever their age.
    #[arg(long)]
    pub bypassed_scheduler_names: Option<String>,
    /// Whether pods are added for the room that `CapacityBuffer` objects ask for.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub capacity_buffer_pod_injection_enabled: bool,
    /// No use: buffers are read as they are written.
    #[arg(long)]
    pub capacity_buffer_controller_enabled: Option<bool>,
    /// No use.
    #[arg(long)]
    pub capacity_buffer_pod_dry_run_enabled: Option<bool>,
    /// No use.
    #[arg(long)]
    pub cloud_provider: Option<String>,
    /// No use.
    #[arg(long)]
    pub balancing_label: Option<String>,
    /// No use: there is one.
    #[arg(long)]
    pub leader_elect: Option<bool>,
    /// No use.
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
    /// No use.
    #[arg(long)]
    pub status_config_map_name: Option<String>,
    /// No use.
    #[arg(long)]
    pub address: Option<String>,
    /// No use.
    #[arg(long)]
    pub v: Option<u8>,
}

impl Flags {
    /// What the model goes by.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            scan_interval: self.scan_interval,
            scale_down_unneeded: self.scale_down_unneeded_time,
            scale_down_delay_after_add: self.scale_down_delay_after_add,
            scale_down_unready: self.scale_down_unready_time,
            max_node_provision: self.max_node_provision_time,
            initial_backoff: self.initial_node_group_backoff_duration,
            enforce_min_size: self.enforce_node_group_min_size,
            frequent_loops: self.frequent_loops_enabled,
            expanders: self.expander.iter().filter_map(|name| expander(name)).collect(),
            ..Settings::new(Generation::V1_36)
        };
        if self.bypassed_scheduler_names.is_some() {
            settings.pod_hold = SignedDuration::ZERO;
            settings.gpu_pod_hold = SignedDuration::ZERO;
        }
        settings
    }
}

fn expander(name: &str) -> Option<Expander> {
    match name {
        "grpc" => Some(Expander::Grpc),
        "least-waste" => Some(Expander::LeastWaste),
        _ => None,
    }
}

fn length(text: &str) -> Result<SignedDuration, String> {
    text.parse().map_err(|_| format!("{text} is no length of time: write it like 90s or 10m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_the_original_is_understood() {
        let flags = Flags::parse_from([
            "model",
            "--kubeconfig=k",
            "--cloud-config=c",
            "--grpc-expander-url=localhost:1",
            "--grpc-expander-cert=ca",
            "--expander=grpc,least-waste",
            "--scan-interval=2s",
            "--enforce-node-group-min-size=true",
            "--bypassed-scheduler-names=x",
            "--v=2",
        ]);
        let settings = flags.settings();
        assert_eq!(settings.expanders, [Expander::Grpc, Expander::LeastWaste]);
        assert_eq!(settings.scan_interval, SignedDuration::from_secs(2));
        assert_eq!(settings.gpu_pod_hold, SignedDuration::ZERO);
        assert!(settings.enforce_min_size && settings.frequent_loops);
    }
}
