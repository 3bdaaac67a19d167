//! `suppliers:`, and what pools say of them.

use std::collections::BTreeSet;

use super::{Faults, Path, quoted};
use crate::policy::raw::{RawPolicy, RawSupplier, RawSupplierKind};
use crate::policy::rules::supplier::{ENDPOINTS, KARPENTER, SIMULATED, SupplierKind, SupplierRule};

pub(super) fn suppliers(faults: &mut Faults, path: &Path, raw: &[RawSupplier]) -> Option<Vec<SupplierRule>> {
    let names: Vec<&str> = raw.iter().map(|one| one.name.as_str()).collect();
    faults.unrepeated(path, &names, |name| quoted(name));
    let read: Vec<_> = raw.iter().enumerate().map(|(at, one)| supplier(faults, &path.index(at), one)).collect();
    read.into_iter().collect()
}

fn supplier(faults: &mut Faults, path: &Path, raw: &RawSupplier) -> Option<SupplierRule> {
    let name = faults.id(&path.key("name"), &raw.name);
    let kind = match (raw.kind, &raw.endpoint) {
        (RawSupplierKind::Simulated, _) => {
            single(faults, path, raw, SIMULATED);
            SupplierKind::Simulated
        }
        (RawSupplierKind::Karpenter, _) => {
            single(faults, path, raw, KARPENTER);
            SupplierKind::Karpenter
        }
        (RawSupplierKind::Plugin, None) => {
            faults.add(path, "has no endpoint: write where the plugin listens, such as unix:///run/stoker/plugin.sock");
            return None;
        }
        (RawSupplierKind::Plugin, Some(endpoint)) => {
            if [SIMULATED, KARPENTER].contains(&raw.name.as_str()) {
                let message = format!("{} is the name of a built-in supplier: give the plugin its own", raw.name);
                faults.add(&path.key("name"), message);
            }
            if !ENDPOINTS.iter().any(|begin| endpoint.strip_prefix(begin).is_some_and(|rest| !rest.is_empty())) {
                let message =
                    format!("{} is no endpoint: write unix:///path/to/socket, or http://127.0.0.1:port", quoted(endpoint));
                faults.add(&path.key("endpoint"), message);
            }
            if raw.boot_template.as_deref().is_some_and(|file| !file.starts_with('/')) {
                let message = "is no absolute path: write where the file is mounted, such as /etc/stoker/boot/kubeadm.yaml";
                faults.add(&path.key("bootTemplate"), message);
            }
            SupplierKind::Plugin { endpoint: endpoint.clone(), boot_template: raw.boot_template.clone() }
        }
    };
    Some(SupplierRule { name: name?, kind })
}

/// A supplier of which there is one bears its kind as its name, and has nothing of a plugin.
fn single(faults: &mut Faults, path: &Path, raw: &RawSupplier, kind: &str) {
    if raw.name != kind {
        faults.add(&path.key("name"), format!("{} is of kind {kind}: call it {kind}", quoted(&raw.name)));
    }
    for (key, value) in [("endpoint", &raw.endpoint), ("bootTemplate", &raw.boot_template)] {
        if value.is_some() {
            faults.add(&path.key(key), "is for kind: plugin only: take it out");
        }
    }
}

/// Pools name suppliers that there are.
pub(super) fn named(faults: &mut Faults, path: &Path, raw: &RawPolicy) {
    let known: BTreeSet<&str> = match raw.suppliers.as_slice() {
        [] => [SIMULATED].into(),
        some => some.iter().map(|one| one.name.as_str()).collect(),
    };
    for (at, pool) in raw.pools.iter().enumerate() {
        if let Some(name) = pool.supplier.as_deref().filter(|name| !known.contains(name)) {
            let known = known.iter().copied().collect::<Vec<_>>().join(", ");
            let message = format!("{} is not under suppliers: write one of {known}, or add it there", quoted(name));
            faults.add(&path.index(at).key("supplier"), message);
        }
    }
}
