//! Images of a pool's GPU pods, remembered for pools that require them on warm nodes.

use std::sync::Arc;

use super::pass::{Changes, Pass};
use crate::policy::{Policy, Pool};

/// Takes note of what runs, and forgets pools that no longer ask.
pub(super) fn remember<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let policy: &Policy = &pass.catalogue.policy;
    if !policy.pools.iter().any(Pool::waits_for_images) {
        changes.memory.images.clear();
        return;
    }
    changes.memory.images.retain(|name, _| policy.pool(name).is_some_and(Pool::waits_for_images));
    let (mut images, nothing) = (std::mem::take(&mut changes.memory.images), Arc::default());
    for (_, entry) in changes.indexed() {
        let Some((_, pool)) = entry.pool().filter(|(_, pool)| pool.waits_for_images()) else { continue };
        let Some(node) = entry.node().and_then(|node| pass.snapshot.images.get(&node.name)) else { continue };
        let known = images.get(&pool.name).map_or(&nothing, |known| known);
        if known.is_news(&node.runs, pass.now) {
            Arc::make_mut(images.entry(pool.name.clone()).or_default()).take(&node.runs, pass.now);
        }
    }
    changes.memory.images = images;
}
