//! Gives back what the marks say: what was there before, and nothing that others have changed since.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};

use super::marks::{FIELD_MANAGER, Guard, LimitsMark, OWNER, WindowMark};
use super::write::{LEASE, Writer, with_cure};
use crate::objects::{NODE_POOL, Node, NodeOverlay, NodePool, name};

/// One object that bore a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Its kind and name.
    pub object: String,
    /// What is given back.
    pub what: String,
    /// Why it was not; `None` where it was, or was not to be.
    pub fault: Option<String>,
}

/// For how long nobody has looked after the marks; `None` where nobody ever did.
///
/// # Errors
/// The Lease cannot be read.
pub async fn unattended_for(client: &Client, now: Timestamp) -> Result<Option<SignedDuration>, String> {
    let lease = Api::<Lease>::default_namespaced(client.clone()).get_opt(LEASE).await;
    let lease = lease.map_err(|error| format!("Lease {}/{LEASE}: {}", client.default_namespace(), with_cure(&error)))?;
    Ok(lease.and_then(|lease| Some(now.duration_since(lease.spec?.renew_time?.0))))
}

/// Gives everything back; with `dry_run` it is only told.
///
/// # Errors
/// What cannot be listed, and the cure.
pub async fn clean(client: &Client, dry_run: bool) -> Result<Vec<Cleaned>, String> {
    let writer = Writer::new(client);
    let mut cleaned = Vec::new();
    let pools = match Api::<NodePool>::all(client.clone()).list(&ListParams::default()).await {
        Ok(pools) => pools.items,
        // Where there are no NodePools none bears a mark.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(format!("NodePools cannot be listed: {}", with_cure(&error))),
    };
    for pool in &pools {
        let object = format!("NodePool {}", name(&pool.meta));
        let row = match LimitsMark::of(pool) {
            Ok(None) => continue,
            Err(why) => Cleaned { object, what: "spec.limits".to_owned(), fault: Some(why) },
            Ok(Some(mark)) => {
                let back = mark.given_back(pool.spec.limits.as_ref());
                let what = back.map_or_else(|| "the mark alone".to_owned(), |limits| format!("spec.limits {limits}"));
                let written =
                    if dry_run { Ok(Some(())) } else { writer.give_back(pool, &mark).await.map(|done| done.map(drop)) };
                Cleaned { object, what, fault: fault(written) }
            }
        };
        cleaned.push(row);
    }
    for pool in &pools {
        let object = format!("NodePool {}", name(&pool.meta));
        let (what, written) = match WindowMark::of(pool) {
            Ok(None) => continue,
            Err(why) => ("consolidateAfter".to_owned(), Err(why)),
            Ok(Some(mark)) => {
                let was = mark.was.as_deref().unwrap_or("none");
                let what = if mark.stands(pool) { format!("consolidateAfter {was}") } else { "the mark alone".to_owned() };
                // Its limits may just have been written.
                let pool = if dry_run { Ok(None) } else { again(client, pool).await };
                let written = match pool {
                    Ok(Some(pool)) => writer.give_window_back(&pool, &mark).await.map(|done| done.map(drop)),
                    Ok(None) => Ok(Some(())),
                    Err(why) => Err(why),
                };
                (what, written)
            }
        };
        cleaned.push(Cleaned { object, what, fault: fault(written) });
    }
    let owned = ListParams::default().labels(&format!("{OWNER}={FIELD_MANAGER}"));
    let overlays = match Api::<NodeOverlay>::all(client.clone()).list(&owned).await {
        Ok(overlays) => overlays.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(format!("NodeOverlays cannot be listed: {}", with_cure(&error))),
    };
    for overlay in &overlays {
        let written = if dry_run { Ok(()) } else { writer.remove_overlay(overlay).await };
        let object = format!("NodeOverlay {}", name(&overlay.meta));
        cleaned.push(Cleaned { object, what: "the price".to_owned(), fault: written.err() });
    }
    let labelled = ListParams::default().labels(NODE_POOL);
    let nodes = Api::<Node>::all(client.clone()).list(&labelled).await;
    let nodes = nodes.map_err(|error| format!("Nodes cannot be listed: {}", with_cure(&error)))?;
    let marked: BTreeMap<&str, (&Node, Guard)> =
        nodes.items.iter().map(|node| (name(&node.meta), (node, Guard::of(node)))).collect();
    for (name, (node, guard)) in marked {
        let what = match guard {
            Guard::None | Guard::Theirs => continue,
            Guard::Ours => "do-not-disrupt",
            Guard::Overruled => "the mark alone",
        };
        let written = if dry_run { Ok(Some(())) } else { writer.release(node, guard).await.map(|done| done.map(drop)) };
        cleaned.push(Cleaned { object: format!("Node {name}"), what: what.to_owned(), fault: fault(written) });
    }
    Ok(cleaned)
}

/// A `NodePool` as it is now; `None` where it is gone.
async fn again(client: &Client, pool: &NodePool) -> Result<Option<NodePool>, String> {
    Api::<NodePool>::all(client.clone()).get_opt(name(&pool.meta)).await.map_err(|error| with_cure(&error))
}

fn fault(written: Result<Option<()>, String>) -> Option<String> {
    match written {
        Ok(Some(())) => None,
        Ok(None) => Some("it changed meanwhile: run the command again".to_owned()),
        Err(why) => Some(why),
    }
}
