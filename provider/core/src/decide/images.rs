//! Images of a pool's GPU pods, remembered for pools that require them on warm nodes.

use std::sync::Arc;

use super::Draft;
use crate::policy::{Policy, Pool};

/// Takes note of what runs, and forgets pools that no longer ask.
pub(super) fn remember(draft: &mut Draft<'_>) {
    let policy: &Policy = &draft.catalogue.policy;
    if !policy.pools.iter().any(Pool::waits_for_images) {
        draft.memory.images.clear();
        return;
    }
    draft.memory.images.retain(|name, _| policy.pool(name).is_some_and(Pool::waits_for_images));
    let (mut images, nothing) = (std::mem::take(&mut draft.memory.images), Arc::default());
    for (_, seat) in draft.seated() {
        let Some((_, pool)) = seat.pool().filter(|(_, pool)| pool.waits_for_images()) else { continue };
        let Some(node) = seat.node().and_then(|node| draft.snapshot.images.get(&node.name)) else { continue };
        let known = images.get(&pool.name).map_or(&nothing, |known| known);
        if known.is_news(&node.runs, draft.now) {
            Arc::make_mut(images.entry(pool.name.clone()).or_default()).take(&node.runs, draft.now);
        }
    }
    draft.memory.images = images;
}
