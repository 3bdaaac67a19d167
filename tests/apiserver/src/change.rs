//! Calls that change an object.

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::json;

use crate::call::{Answer, Call, failure, object};
use crate::store::{Key, Store, Target, merge};

/// A call that makes an object.
pub(crate) fn create(store: &mut Store, call: &Call, target: &Target, key: Key, now: Timestamp) -> Answer {
    if call.method != Method::POST {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed");
    }
    if store.get(&key).is_some() {
        return failure(StatusCode::CONFLICT, "AlreadyExists");
    }
    object(&store.put(key, &target.api_version, call.body.clone(), now))
}

/// A call that changes one object.
pub(crate) fn write(store: &mut Store, call: &Call, target: &Target, key: Key, now: Timestamp) -> Answer {
    let applies = call.media == "application/apply-patch+yaml";
    let known = store.get(&key);
    if applies && known.is_none() {
        return object(&store.put(key, &target.api_version, call.body.clone(), now));
    }
    let Some(mut known) = known else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    let evicts = call.method == Method::POST && target.part.as_deref() == Some("eviction");
    let options = if evicts { &call.body["deleteOptions"] } else { &call.body };
    let condition = if evicts || call.method == Method::DELETE { &options["preconditions"] } else { &call.body["metadata"] };
    let as_read = ["uid", "resourceVersion"]
        .into_iter()
        .all(|field| condition[field].is_null() || condition[field] == known["metadata"][field]);
    if !as_read {
        return failure(StatusCode::CONFLICT, "Conflict");
    }
    if evicts || call.method == Method::DELETE {
        // A pod on a node stays until its kubelet has ended it.
        if key.plural == "pods" && options["gracePeriodSeconds"] != 0 && !known["spec"]["nodeName"].is_null() {
            known["metadata"]["deletionTimestamp"] = json!(now.to_string());
            let known = store.put(key, &target.api_version, known, now);
            return if evicts {
                object(&json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
            } else {
                object(&known)
            };
        }
        return object(&store.remove(&key).unwrap_or_default());
    }
    if call.method == Method::PUT && target.part.is_none() {
        // What has a status of its own keeps it.
        let replaced = std::mem::replace(&mut known, call.body.clone());
        known["status"] = replaced["status"].clone();
        return object(&store.put(key, &target.api_version, known, now));
    }
    if call.method != Method::PATCH {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed");
    }
    merge(&mut known, &call.body);
    object(&store.put(key, &target.api_version, known, now))
}
