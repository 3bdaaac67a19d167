//! Gives back what the marks say: what was there before, and nothing that others have changed since.

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use stoker_service::controllers::buffers::kinds;

use super::floors;
use super::marks::{FIELD_MANAGER, Field, FieldMark, Guard, LimitsMark, OWNER, value_in_words};
use super::repair::own_condition;
use super::write::{LEASE, Writer, with_cure};
use crate::objects::{NODE_POOL, Node, NodeOverlay, NodePool, name};

/// One object that bore a mark, or a kind that could not be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Its kind and name; a kind alone, where that could not be listed.
    pub object: String,
    /// What is given back.
    pub what: String,
    /// Why it was not; `None` where it was, or was not to be.
    pub fault: Option<String>,
}

/// For how long nobody has looked after the marks; `None` where there is no Lease in this namespace, which tells nothing of others.
///
/// # Errors
/// The Lease cannot be read.
pub async fn unattended_for(client: &Client, now: Timestamp) -> Result<Option<SignedDuration>, String> {
    let lease = Api::<Lease>::default_namespaced(client.clone()).get_opt(LEASE).await;
    let lease =
        lease.map_err(|error| format!("Lease {}/{LEASE}: {}", client.default_namespace(), with_cure("Lease", &error)))?;
    Ok(lease.and_then(|lease| Some(now.duration_since(lease.spec?.renew_time?.0))))
}

/// Gives everything back that can be; with `dry_run` the API server only tells whether it would take that.
pub async fn clean(client: &Client, dry_run: bool) -> Vec<Cleaned> {
    let by = Cleaner { client, writer: Writer::new(client, dry_run) };
    let mut cleaned = Vec::new();
    for pool in &listed::<NodePool>(client, &ListParams::default(), &mut cleaned).await {
        cleaned.extend(by.limits(pool).await);
        for field in Field::ALL {
            cleaned.extend(by.field(pool, field).await);
        }
    }
    let owned = ListParams::default().labels(&format!("{OWNER}={FIELD_MANAGER}"));
    for overlay in &listed::<NodeOverlay>(client, &owned, &mut cleaned).await {
        let fault = by.writer.remove_overlay(overlay).await.err();
        let object = format!("NodeOverlay {}", name(&overlay.meta));
        cleaned.push(Cleaned { object, what: "the price".to_owned(), fault });
    }
    cleaned.extend(by.floors().await);
    let mut nodes = listed::<Node>(client, &ListParams::default().labels(NODE_POOL), &mut cleaned).await;
    nodes.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    for node in &nodes {
        cleaned.extend(by.node(node).await);
        cleaned.extend(by.condition(node).await);
    }
    cleaned
}

/// All objects of a kind; none where the cluster does not know it, as none of them bears a mark then. One that cannot be listed keeps no
/// other from being cleaned.
async fn listed<K>(client: &Client, params: &ListParams, cleaned: &mut Vec<Cleaned>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match Api::<K>::all(client.clone()).list(params).await {
        Ok(objects) => objects.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            let kind = K::kind(&());
            let fault = Some(format!("they cannot be listed: {}", with_cure(kind.as_ref(), &error)));
            cleaned.push(Cleaned { object: format!("{kind}s"), what: "what they bear".to_owned(), fault });
            Vec::new()
        }
    }
}

struct Cleaner<'a> {
    client: &'a Client,
    writer: Writer,
}

impl Cleaner<'_> {
    async fn limits(&self, pool: &NodePool) -> Option<Cleaned> {
        let object = format!("NodePool {}", name(&pool.meta));
        let mark = match LimitsMark::of(pool) {
            Ok(mark) => mark?,
            Err(why) => return Some(Cleaned { object, what: "spec.limits".to_owned(), fault: Some(why) }),
        };
        let back = mark.given_back(pool.spec.limits.as_ref());
        let what = back.map_or_else(|| "the mark alone".to_owned(), |limits| format!("spec.limits {limits}"));
        let fault = self.writer.limits_back(pool).await;
        Some(Cleaned { object, what, fault })
    }

    async fn field(&self, pool: &NodePool, field: Field) -> Option<Cleaned> {
        let object = format!("NodePool {}", name(&pool.meta));
        let mark = match FieldMark::of(field, pool) {
            Ok(mark) => mark?,
            Err(why) => return Some(Cleaned { object, what: field.to_string(), fault: Some(why) }),
        };
        let original = mark.original(field, pool);
        let stands = original.as_ref() != field.of(pool);
        let what = if stands {
            format!("{field} {}", value_in_words(original.as_ref()))
        } else {
            format!("the mark of {field} alone")
        };
        let fault = self.writer.field_back(pool, field).await;
        Some(Cleaned { object, what, fault })
    }

    /// Deletes what keeps room for floors, in the namespaces that may be read: buffers first, for they name the pod templates.
    async fn floors(&self) -> Vec<Cleaned> {
        let mut cleaned = Vec::new();
        for kind in kinds() {
            let all = match floors::all(self.client, &kind).await {
                Ok(all) => all,
                Err(why) => {
                    let fault = Some(format!("they cannot be listed: {why}"));
                    cleaned.push(Cleaned { object: format!("{}s", kind.kind), what: "the floors".to_owned(), fault });
                    continue;
                }
            };
            for object in all {
                let fault = self.writer.remove_floor(&kind, &object).await.err();
                let name = format!("{} {}/{}", kind.kind, object.namespace().unwrap_or_default(), object.name_any());
                cleaned.push(Cleaned { object: name, what: "the floor".to_owned(), fault });
            }
        }
        cleaned
    }

    async fn condition(&self, node: &Node) -> Option<Cleaned> {
        let condition = own_condition(node)?;
        let fault = self.writer.clear_condition(node).await;
        Some(Cleaned { object: format!("Node {}", name(&node.meta)), what: format!("condition {condition}"), fault })
    }

    async fn node(&self, node: &Node) -> Option<Cleaned> {
        let what = match Guard::of(node) {
            Guard::None | Guard::Theirs => return None,
            Guard::Ours => "do-not-disrupt",
            Guard::Overruled => "the mark alone",
        };
        let fault = self.writer.guard_back(node).await;
        Some(Cleaned { object: format!("Node {}", name(&node.meta)), what: what.to_owned(), fault })
    }
}
