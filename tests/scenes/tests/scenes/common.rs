//! What scenes share: how one ends, and the policies that several tell of.

use stoker_scenes::Scene;

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
pub(crate) const PLAIN: &str = "
pools:
- name: serve
  workload: inference
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east], zones: [zone-a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
";

/// Training on spot in three zones, on demand where there is none.
pub(crate) const SPOT: &str = "
pools:
- name: train
  workload: training
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [spot, on-demand], spot: { checkpoint: 10m, restart: 2m } }
  limits: { maxNodes: 10 }
";
