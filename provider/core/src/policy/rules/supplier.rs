//! Which suppliers make nodes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::ids::SupplierName;

/// The simulated supplier's name: there is one.
pub const SIMULATED: &str = "simulated";

/// The name of the supplier that buys through Karpenter: a cluster has one Karpenter.
pub const KARPENTER: &str = "karpenter";

/// The label of a carrier: a `NodePool` that lends its name to Stoker's claims.
pub const CARRIER_LABEL: &str = "stoker.dev/carrier";
/// The label with the cloud of a `NodePool`'s nodes, where [`cloud_of_class`] knows no cloud of its `NodeClass`.
pub const CLOUD_LABEL: &str = "stoker.dev/cloud";
/// The API group of AWS's `NodeClasses`, which tell the zones' names.
pub const AWS_CLASSES: &str = "karpenter.k8s.aws";

/// The cloud of a `NodePool`'s nodes: of Karpenter's provider, by the API group of its `NodeClass`, else by the pool's own label.
pub fn cloud_of_class<'a>(group: &str, labels: Option<&'a BTreeMap<String, String>>) -> Option<&'a str> {
    match group {
        AWS_CLASSES => Some("aws"),
        "karpenter.azure.com" => Some("azure"),
        "karpenter.k8s.gcp" => Some("gcp"),
        _ => labels?.get(CLOUD_LABEL).map(String::as_str),
    }
}

/// How an endpoint of a plugin begins: a socket, or a port of this machine. Calls that make machines cross no network in the
/// clear.
pub const ENDPOINTS: [&str; 3] = ["unix:///", "http://127.0.0.1:", "http://[::1]:"];

/// How the endpoint of a plugin on another machine begins: both sides show certificates.
pub const TLS_ENDPOINT: &str = "https://";

/// The files by which Stoker and a plugin on another machine know each other, all in PEM. They are read anew for each connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginTls {
    /// Who signs the plugin's certificate.
    #[schemars(example = "/etc/stoker/plugin/ca.crt")]
    pub ca_file: String,
    /// Stoker's certificate, which the plugin asks for.
    #[schemars(example = "/etc/stoker/plugin/tls.crt")]
    pub cert_file: String,
    /// Its private key.
    #[schemars(example = "/etc/stoker/plugin/tls.key")]
    pub key_file: String,
}

/// A supplier that the policy names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupplierRule {
    /// Its name.
    pub name: SupplierName,
    /// How it is reached.
    pub kind: SupplierKind,
}

/// How a supplier is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SupplierKind {
    /// It is simulated, in this process.
    Simulated,
    /// A plugin serves it.
    Plugin {
        /// Where the plugin listens.
        endpoint: String,
        /// File with what a new machine boots with; `None` where its image joins the cluster by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot_template: Option<String>,
        /// What both sides show; of an endpoint that begins with [`TLS_ENDPOINT`], and of no other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls: Option<PluginTls>,
    },
    /// Karpenter, by the `NodeClaims` of the cluster that the service runs in.
    Karpenter,
    /// EC2 itself.
    Aws {
        /// File with what machines are made with, and where.
        config: String,
    },
}

impl SupplierKind {
    /// The word in the policy.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Plugin { .. } => "plugin",
            Self::Karpenter => "karpenter",
            Self::Aws { .. } => "aws",
        }
    }

    /// Whether its nodes say by labels how they were bought, as far as that is known without asking it.
    pub const fn labels_capacity_type(&self) -> bool {
        match self {
            Self::Simulated | Self::Plugin { .. } => false,
            Self::Karpenter | Self::Aws { .. } => true,
        }
    }
}
