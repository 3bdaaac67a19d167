//! Which suppliers make nodes.

use serde::{Deserialize, Serialize};

use crate::base::ids::SupplierName;

/// The simulated supplier's name: there is one.
pub const SIMULATED: &str = "simulated";

/// How an endpoint of a plugin begins: a socket, or a port of this machine. Calls that make machines cross no network in the
/// clear.
pub const ENDPOINTS: [&str; 3] = ["unix:///", "http://127.0.0.1:", "http://[::1]:"];

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
    },
}
