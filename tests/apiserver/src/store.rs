//! The objects, and what became of them in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::call::Call;

/// Which object: of which kind, in which namespace, by which name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) plural: String,
    /// Empty for what is in none.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) api_version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// `status`, `eviction` and the like.
    pub(crate) part: Option<String>,
}

impl Target {
    /// `/api/v1/nodes/n`, `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/PART`.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(ToOwned::to_owned);
        let api_version = match parts.next()?.as_str() {
            "api" => parts.next()?,
            "apis" => format!("{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut parts = parts.peekable();
        let namespace = if parts.next_if(|part| part == "namespaces").is_some() { Some(parts.next()?) } else { None };
        Some(Self { api_version, plural: parts.next()?, namespace, name: parts.next(), part: parts.next() })
    }

    /// The object that it names; `None` for a list.
    pub(crate) fn key(&self) -> Option<Key> {
        let namespace = self.namespace.clone().unwrap_or_default();
        Some(Key { plural: self.plural.clone(), namespace, name: self.name.clone()? })
    }
}

const fn kind(plural: &str) -> Option<&'static str> {
    match plural.as_bytes() {
        b"nodes" => Some("Node"),
        b"pods" => Some("Pod"),
        b"podtemplates" => Some("PodTemplate"),
        b"capacitybuffers" => Some("CapacityBuffer"),
        b"nodepools" => Some("NodePool"),
        b"nodeclaims" => Some("NodeClaim"),
        b"leases" => Some("Lease"),
        b"ec2nodeclasses" => Some("EC2NodeClass"),
        _ => None,
    }
}

/// An object as JSON: a cluster of 20,000 pods fits into memory as text.
pub(crate) type Stored = Arc<str>;

/// A change, by the version that it made.
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) what: &'static str,
    pub(crate) object: Stored,
}

/// All objects.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) version: u64,
    objects: BTreeMap<Key, Stored>,
    /// Every change since the start: what watches tell.
    pub(crate) log: Vec<Change>,
    pub(crate) events: Vec<Value>,
    /// Calls that changed something.
    pub(crate) writes: Vec<Call>,
    /// How often what was asked.
    pub(crate) asked: BTreeMap<String, usize>,
}

/// What a store holds at one time.
pub(crate) struct Marked {
    version: u64,
    objects: BTreeMap<Key, Stored>,
    changes: usize,
}

impl Store {
    /// What it holds now.
    pub(crate) fn marked(&self) -> Marked {
        Marked { version: self.version, objects: self.objects.clone(), changes: self.log.len() }
    }

    /// Forgets what has changed since.
    pub(crate) fn back_to(&mut self, before: Marked) {
        self.version = before.version;
        self.objects = before.objects;
        self.log.truncate(before.changes);
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.objects.get(key).and_then(|text| serde_json::from_str(text).ok())
    }

    /// Those of that kind, by namespace and name.
    pub(crate) fn of(&self, plural: &str) -> impl Iterator<Item = (&Key, &Stored)> {
        let first = Key { plural: plural.to_owned(), namespace: String::new(), name: String::new() };
        let plural = plural.to_owned();
        self.objects.range(first..).take_while(move |(key, _)| key.plural == plural)
    }

    /// An object that was there before anybody asked: no watch tells of it.
    pub(crate) fn seed(&mut self, key: Key, api_version: &str, object: Value, now: Timestamp) {
        let object = self.completed(&key, api_version, object, None, now);
        self.objects.insert(key, object.to_string().into());
    }

    /// Writes an object, as the server completes it.
    pub(crate) fn put(&mut self, key: Key, api_version: &str, object: Value, now: Timestamp) -> Value {
        self.version += 1;
        let before = self.get(&key);
        let what = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let object = self.completed(&key, api_version, object, before.as_ref(), now);
        let text: Stored = object.to_string().into();
        self.objects.insert(key.clone(), Arc::clone(&text));
        self.log.push(Change { version: self.version, key, what, object: text });
        object
    }

    fn completed(&self, key: &Key, api_version: &str, mut object: Value, before: Option<&Value>, now: Timestamp) -> Value {
        let version = self.version;
        if let Some(kind) = kind(&key.plural) {
            object["kind"] = json!(kind);
        }
        object["apiVersion"] = json!(api_version);
        let meta = &mut object["metadata"];
        meta["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            meta["namespace"] = json!(key.namespace);
        }
        let mut default = |field: &str, value: Value| {
            let kept = before.map_or(value, |before| before["metadata"][field].clone());
            if meta[field].is_null() {
                meta[field] = kept;
            }
        };
        default("uid", json!(format!("uid-{}-{version}", key.name)));
        default("creationTimestamp", json!(now.to_string()));
        default("generation", json!(1));
        meta["resourceVersion"] = json!(version.to_string());
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten();
        // Whoever tells of a change of something else says himself when it was.
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            let was = before.and_then(|before| {
                let conditions = before["status"]["conditions"].as_array()?;
                conditions.iter().find(|c| c["type"] == condition["type"] && c["status"] == condition["status"])
            });
            condition["lastTransitionTime"] =
                was.map_or_else(|| json!(now.to_string()), |was| was["lastTransitionTime"].clone());
        }
        object
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.get(key)?;
        self.objects.remove(key);
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let text = object.to_string().into();
        self.log.push(Change { version: self.version, key: key.clone(), what: "DELETED", object: text });
        Some(object)
    }
}

/// A merge patch; lists of conditions are merged by type, as a strategic one does.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(key));
        } else if key == "conditions" {
            if !object[key].is_array() {
                object[key] = json!([]);
            }
            let Some(conditions) = object[key].as_array_mut() else { continue };
            for new in value.as_array().into_iter().flatten() {
                match conditions.iter().position(|old| old["type"] == new["type"]) {
                    Some(at) if new["$patch"] == "delete" => drop(conditions.remove(at)),
                    Some(at) => conditions.get_mut(at).into_iter().for_each(|old| merge(old, new)),
                    None if new["$patch"] == "delete" => {}
                    None => conditions.push(new.clone()),
                }
            }
        } else if value.is_object() {
            merge(&mut object[key], value);
        } else {
            object[key] = value.clone();
        }
    }
}
