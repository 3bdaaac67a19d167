//! `suppliers:`, and what pools say of them.

use std::collections::BTreeSet;

use super::{Faults, Path, quoted};
use crate::policy::raw::{RawPolicy, RawSupplier, RawSupplierKind};
use crate::policy::rules::supplier::{ENDPOINTS, KARPENTER, PluginTls, SIMULATED, SupplierKind, SupplierRule, TLS_ENDPOINT};

pub(super) fn suppliers(faults: &mut Faults, path: &Path, raw: &[RawSupplier]) -> Option<Vec<SupplierRule>> {
    let names: Vec<&str> = raw.iter().map(|one| one.name.as_str()).collect();
    faults.unrepeated(path, &names, |name| quoted(name));
    let read: Vec<_> = raw.iter().enumerate().map(|(at, one)| supplier(faults, &path.index(at), one)).collect();
    read.into_iter().collect()
}

fn supplier(faults: &mut Faults, path: &Path, raw: &RawSupplier) -> Option<SupplierRule> {
    let name = faults.id(&path.key("name"), &raw.name);
    if raw.config.is_some() && raw.kind != RawSupplierKind::Aws {
        faults.add(&path.key("config"), "is for kind: aws only: take it out");
    }
    let kind = match (raw.kind, &raw.endpoint) {
        (RawSupplierKind::Simulated, _) => {
            single(faults, path, raw, SIMULATED);
            SupplierKind::Simulated
        }
        (RawSupplierKind::Karpenter, _) => {
            single(faults, path, raw, KARPENTER);
            SupplierKind::Karpenter
        }
        (RawSupplierKind::Aws, _) => {
            of_plugins_only(faults, path, raw);
            built_in_name(faults, path, raw, "AWS");
            match raw.config.as_deref() {
                Some(file) if file.starts_with('/') => SupplierKind::Aws { config: file.to_owned() },
                Some(_) => {
                    let message = "is no absolute path: write where the file is mounted, such as /etc/stoker/aws/aws.yaml";
                    faults.add(&path.key("config"), message);
                    return None;
                }
                None => {
                    faults.add(path, "has no config: write where its file is mounted, such as /etc/stoker/aws/aws.yaml");
                    return None;
                }
            }
        }
        (RawSupplierKind::Plugin, None) => {
            faults.add(path, "has no endpoint: write where the plugin listens, such as unix:///run/stoker/plugin.sock");
            return None;
        }
        (RawSupplierKind::Plugin, Some(endpoint)) => {
            built_in_name(faults, path, raw, "the plugin");
            let begins = |begin: &&str| endpoint.strip_prefix(*begin).is_some_and(|rest| !rest.is_empty());
            let is_far = begins(&TLS_ENDPOINT);
            if !is_far && !ENDPOINTS.iter().any(begins) {
                let message = format!(
                    "{} is no endpoint: write unix:///path/to/socket or http://127.0.0.1:port, or https://host:port with tls",
                    quoted(endpoint)
                );
                faults.add(&path.key("endpoint"), message);
            } else if is_far && raw.tls.is_none() {
                faults.add(path, "has no tls, and its plugin is on another machine: add tls: { caFile, certFile, keyFile }");
            } else if !is_far && raw.tls.is_some() {
                faults.add(&path.key("tls"), "is for an endpoint https://host:port only: take it out");
            }
            if let Some(PluginTls { ca_file, cert_file, key_file }) = &raw.tls {
                for (key, file) in [("caFile", ca_file), ("certFile", cert_file), ("keyFile", key_file)] {
                    if !file.starts_with('/') {
                        let message =
                            "is no absolute path: write where the file is mounted, such as /etc/stoker/plugin/tls.crt";
                        faults.add(&path.key("tls").key(key), message);
                    }
                }
            }
            if raw.boot_template.as_deref().is_some_and(|file| !file.starts_with('/')) {
                let message = "is no absolute path: write where the file is mounted, such as /etc/stoker/boot/kubeadm.yaml";
                faults.add(&path.key("bootTemplate"), message);
            }
            SupplierKind::Plugin { endpoint: endpoint.clone(), boot_template: raw.boot_template.clone(), tls: raw.tls.clone() }
        }
    };
    Some(SupplierRule { name: name?, kind })
}

/// A supplier of which there is one bears its kind as its name, and has nothing of a plugin.
fn single(faults: &mut Faults, path: &Path, raw: &RawSupplier, kind: &str) {
    if raw.name != kind {
        faults.add(&path.key("name"), format!("{} is of kind {kind}: call it {kind}", quoted(&raw.name)));
    }
    of_plugins_only(faults, path, raw);
}

/// A supplier may not be called as another kind is that has one name.
fn built_in_name(faults: &mut Faults, path: &Path, raw: &RawSupplier, what: &str) {
    if [SIMULATED, KARPENTER].contains(&raw.name.as_str()) {
        let message = format!("{} is the name of a built-in supplier: give {what} its own", raw.name);
        faults.add(&path.key("name"), message);
    }
}

/// What only plugins have.
fn of_plugins_only(faults: &mut Faults, path: &Path, raw: &RawSupplier) {
    let given =
        [("endpoint", raw.endpoint.is_some()), ("bootTemplate", raw.boot_template.is_some()), ("tls", raw.tls.is_some())];
    for (key, is_given) in given {
        if is_given {
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
