//! Pools that scenes, fault runs and tests have in common: the first lines of each, to be followed by its limits and whatever else it has.

/// Inference on nodes with one L4, on demand in AWS's east; what is given narrows that: `serve!(", zones: [zone-a]")`.
#[macro_export]
macro_rules! serve {
    () => {
        $crate::serve!("")
    };
    ($where:literal) => {
        concat!(
            "- name: serve\n  workload: inference\n  gpu: { models: [L4], count: 1 }\n",
            "  where: { clouds: [aws], regions: [east]",
            $where,
            " }\n  capacity: { prefer: [on-demand] }\n"
        )
    };
}

/// Training on nodes with one L4 in AWS's east, on spot and on demand where there is none, with a checkpoint every ten minutes.
#[macro_export]
macro_rules! train {
    () => {
        $crate::train!("")
    };
    ($where:literal) => {
        concat!(
            "- name: train\n  workload: training\n  gpu: { models: [L4], count: 1 }\n",
            "  where: { clouds: [aws], regions: [east]",
            $where,
            " }\n  capacity: { prefer: [spot, on-demand], spot: { checkpoint: 10m, restart: 2m } }\n"
        )
    };
}
