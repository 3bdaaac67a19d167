//! The set of certificates in a cluster: in Secrets, renewed in time.
//!
//! # Guarantees
//! A set that is valid is left alone. Server and clients always come from one authority: where one of them is missing, foreign or near its
//! end, all are made again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::json;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use super::{CertsError, Set, all_server_names, stem};
use crate::kube::FIELD_MANAGER;
use crate::kube::client::in_words;

/// A set is made again when less than one part in so many of its time is left: four months of a year.
const RENEWED_IN_LAST: i64 = 3;

/// An object of a namespace, written `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl FromStr for ObjectName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        };
        match text.split_once('/') {
            Some((namespace, name)) if named(namespace) && named(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} is not the name of an object: give NAMESPACE/NAME, e.g. stoker/stoker-tls")),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which set is kept, and where.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The Secret of the server: `ca.crt`, `server.crt` and `server.key`.
    pub server: ObjectName,
    /// The Secret of the clients, with `ca.crt`; `None`: the server's.
    pub clients: Option<ObjectName>,
    /// A `ConfigMap` for the authority's certificate alone, as `ca.crt`.
    pub ca: Option<ObjectName>,
    /// Names of the server, with those of its own machine.
    pub server_names: Vec<String>,
    /// Names in the clients' certificates.
    pub client_names: Vec<String>,
    /// Whether a valid set is made again too.
    pub force: bool,
}

/// What became of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Until when it is valid.
    pub until: Timestamp,
    /// Why it was made again; `None` where it was left alone.
    pub renewed: Option<String>,
    /// What was written.
    pub written: Vec<ObjectName>,
}

/// Why the set is not kept.
#[derive(Debug, thiserror::Error)]
pub enum InClusterError {
    /// No certificates could be made.
    #[error(transparent)]
    Make(#[from] CertsError),
    /// An object could not be read.
    #[error("{kind} {object}: could not be read: {why}; its reader needs the verb get on it")]
    Read {
        /// What it is.
        kind: &'static str,
        /// Which one.
        object: ObjectName,
        /// What the API server says.
        why: String,
    },
    /// An object could not be written.
    #[error(
        "{kind} {object}: could not be written: {why}; its writer needs the verb patch on it, or create where it is not there"
    )]
    Write {
        /// What it is.
        kind: &'static str,
        /// Which one.
        object: ObjectName,
        /// What the API server says.
        why: String,
    },
}

/// A Secret or a `ConfigMap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    ConfigMap,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

/// What an object holds; `version` is `None` where it is not there.
#[derive(Debug, Default)]
struct Held {
    version: Option<String>,
    data: BTreeMap<String, String>,
}

/// Sees to it that the set is there and valid.
///
/// # Errors
/// See [`InClusterError`]. What was written before stays: the next call finds that it does not fit, and makes all of it again.
pub async fn keep(client: &Client, wanted: &Wanted, now: Timestamp) -> Result<Kept, InClusterError> {
    let server = read(client, Kind::Secret, &wanted.server).await?;
    let clients = match &wanted.clients {
        Some(object) => Some((object, read(client, Kind::Secret, object).await?)),
        None => None,
    };
    let of_clients = clients.as_ref().map_or(&server.data, |(_, held)| &held.data);
    let found = check(wanted, &server.data, of_clients, now);
    let (mut written, renewed) = (Vec::new(), found.as_ref().err().cloned());
    let renewed = renewed.or_else(|| wanted.force.then(|| "asked for".to_owned()));
    let ca = if renewed.is_some() {
        let set = Set::make(&wanted.server_names, &wanted.client_names)?;
        let ca = set.ca.clone();
        let (of_clients, of_server): (BTreeMap<_, _>, BTreeMap<_, _>) =
            set.into_outputs().map(|file| (file.name, file.text)).partition(|(name, _)| name.starts_with("client"));
        let authority = [("ca.crt".to_owned(), ca.clone())];
        if let Some((object, held)) = clients {
            write(client, Kind::Secret, &wanted.server, &server, of_server).await?;
            write(client, Kind::Secret, object, &held, of_clients.into_iter().chain(authority).collect()).await?;
            written.extend([wanted.server.clone(), object.clone()]);
        } else {
            write(client, Kind::Secret, &wanted.server, &server, of_server.into_iter().chain(of_clients).collect()).await?;
            written.push(wanted.server.clone());
        }
        ca
    } else {
        server.data.get("ca.crt").cloned().unwrap_or_default()
    };
    if let Some(object) = &wanted.ca {
        let held = read(client, Kind::ConfigMap, object).await?;
        if held.data.get("ca.crt") != Some(&ca) {
            write(client, Kind::ConfigMap, object, &held, [("ca.crt".to_owned(), ca.clone())].into()).await?;
            written.push(object.clone());
        }
    }
    let until = match found {
        Ok(until) if renewed.is_none() => until,
        _ => ends(&ca).unwrap_or(now),
    };
    Ok(Kept { until, renewed, written })
}

/// Until when the set is valid.
///
/// # Errors
/// Why it has to be made again.
fn check(
    wanted: &Wanted,
    server: &BTreeMap<String, String>,
    clients: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let ca = server.get("ca.crt").ok_or("there was none")?;
    if clients.get("ca.crt") != Some(ca) {
        return Err("server and clients were of different authorities".to_owned());
    }
    let mut until = valid(ca, now).map_err(|why| format!("the authority's {why}"))?;
    let names: Vec<&str> = all_server_names(&wanted.server_names).collect();
    let pairs = wanted.client_names.iter().enumerate();
    let pairs = pairs.map(|(place, name)| (stem(place, name), clients, vec![name.as_str()]));
    for (stem, data, names) in [("server".to_owned(), server, names)].into_iter().chain(pairs) {
        let part = |kind: &str| data.get(&format!("{stem}.{kind}")).ok_or_else(|| format!("there was no {stem}.{kind}"));
        let (cert, key) = (part("crt")?, part("key")?);
        until = until.min(valid(cert, now).map_err(|why| format!("{stem}'s {why}"))?);
        belongs(cert, key, ca, &names).map_err(|why| format!("{stem}'s {why}"))?;
    }
    Ok(until)
}

/// Until when a certificate is valid.
fn valid(pem: &str, now: Timestamp) -> Result<Timestamp, String> {
    with(pem, |certificate| {
        let (from, to) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
        let (life, left) = (to.saturating_sub(from), to.saturating_sub(now.as_second()));
        if left.saturating_mul(RENEWED_IN_LAST) < life {
            return Err(format!("certificate was valid for {} more days", left.max(0) / 86_400));
        }
        Timestamp::from_second(to).map_err(|_| "certificate has no end".to_owned())
    })
}

fn ends(pem: &str) -> Result<Timestamp, String> {
    with(pem, |certificate| {
        Timestamp::from_second(certificate.validity().not_after.timestamp()).map_err(|error| error.to_string())
    })
}

/// That a certificate is of that authority, for that key, and has those names.
fn belongs(cert: &str, key: &str, ca: &str, names: &[&str]) -> Result<(), String> {
    let authority = with(ca, |ca| Ok(subject_key(ca)))?;
    let key = KeyPair::from_pem(key).map_err(|_| "key could not be read".to_owned())?;
    with(cert, |cert| {
        if authority.is_none() || issuer_key(cert) != authority {
            return Err("certificate was of another authority".to_owned());
        }
        if cert.public_key().raw != key.subject_public_key_info() {
            return Err("certificate was of another key".to_owned());
        }
        let san = cert.subject_alternative_name().ok().flatten();
        let there: Vec<&GeneralName<'_>> = san.iter().flat_map(|san| &san.value.general_names).collect();
        match names.iter().find(|name| !there.iter().any(|there| is_name(there, name))) {
            Some(name) => Err(format!("certificate did not name {name}")),
            None => Ok(()),
        }
    })
}

fn is_name(there: &GeneralName<'_>, wanted: &str) -> bool {
    match there {
        GeneralName::DNSName(name) | GeneralName::URI(name) => *name == wanted,
        GeneralName::IPAddress(bytes) => match wanted.parse() {
            Ok(IpAddr::V4(address)) => *bytes == address.octets(),
            Ok(IpAddr::V6(address)) => *bytes == address.octets(),
            Err(_) => false,
        },
        _ => false,
    }
}

fn subject_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0.to_vec()),
        _ => None,
    })
}

fn issuer_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(key) => key.key_identifier.as_ref().map(|key| key.0.to_vec()),
        _ => None,
    })
}

fn with<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> Result<T, String>) -> Result<T, String> {
    let unread = || "certificate could not be read".to_owned();
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|_| unread())?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).map_err(|_| unread())?;
    read(&certificate)
}

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind.as_str()));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn read(client: &Client, kind: Kind, object: &ObjectName) -> Result<Held, InClusterError> {
    let found = api(client, kind, &object.namespace).get_opt(&object.name).await;
    let failed = |why| InClusterError::Read { kind: kind.as_str(), object: object.clone(), why };
    let Some(found) = found.map_err(|error| failed(in_words(&error)))? else { return Ok(Held::default()) };
    let text = |value: &serde_json::Value| {
        let text = value.as_str()?;
        match kind {
            Kind::ConfigMap => Some(text.to_owned()),
            // What is no text is none of what is kept here.
            Kind::Secret => String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok(),
        }
    };
    let data = found.data.get("data").and_then(serde_json::Value::as_object).into_iter().flatten();
    let data = data.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
    Ok(Held { version: found.metadata.resource_version, data })
}

/// Writes these keys and leaves all others. Two who write at one time do not mix: the later one is refused.
async fn write(
    client: &Client,
    kind: Kind,
    object: &ObjectName,
    held: &Held,
    data: BTreeMap<String, String>,
) -> Result<(), InClusterError> {
    let encoded = |text: String| if kind == Kind::Secret { BASE64_STANDARD.encode(text) } else { text };
    let data: BTreeMap<String, String> = data.into_iter().map(|(name, text)| (name, encoded(text))).collect();
    let api = api(client, kind, &object.namespace);
    let answer = if let Some(version) = &held.version {
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "data": data }));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(&object.name, &parameters, &patch).await
    } else {
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind.as_str()));
        let new = DynamicObject::new(&object.name, &resource).data(json!({ "data": data }));
        api.create(&parameters, &new).await
    };
    let failed = |why| InClusterError::Write { kind: kind.as_str(), object: object.clone(), why };
    answer.map(drop).map_err(|error| failed(in_words(&error)))
}

#[cfg(test)]
mod tests;
