//! What scenes share: how one ends, and the policies that several tell of.

use stoker_scenes::{Scene, serve, train};

/// Ends a scene: no promise was broken, and its timeline is the golden one.
pub(crate) fn end(scene: &Scene, name: &str) {
    assert_eq!(scene.broken(), Vec::<String>::new(), "broken promises, see the timeline:\n{}", scene.timeline());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("goldens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, scene.timeline()));
}

/// One pool of nodes with one L4, on demand in zone a.
pub(crate) const PLAIN: &str = concat!("pools:\n", serve!(", zones: [zone-a]"), "  limits: { maxNodes: 10 }\n",);

/// The same in three zones.
pub(crate) const EAST: &str = concat!("pools:\n", serve!(), "  limits: { maxNodes: 10 }\n");

/// Training on spot in three zones, on demand where there is none.
pub(crate) const SPOT: &str = concat!("pools:\n", train!(), "  limits: { maxNodes: 10 }\n",);
