//! Which suppliers make nodes.

use serde::{Deserialize, Serialize};

use crate::base::ids::SupplierName;

/// The simulated supplier's name: there is one.
pub const SIMULATED: &str = "simulated";

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
