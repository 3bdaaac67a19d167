//! The process's open files: the limit, and how many connections each listener may have of it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most connections of the provider: an autoscaler has one, and more while it restarts.
const PROVIDER: usize = 128;
/// Most connections of the expander, whose callers show no certificate.
const EXPANDER: usize = 64;
/// Most connections of the side port: kubelets and Prometheus ask in turn.
const HTTP: usize = 64;
/// Most connections of the probes' listener: two for each of 5,000 nodes, the old and the new one
/// while a probe changes over. Half of them may come through one gateway.
const PROBES: usize = 10_240;
/// Files for all else: the journal, the cluster, suppliers, Prometheus.
const RESERVED: usize = 256;

/// How many connections each listener may have, so that all of them together leave files for the
/// rest of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The autoscaler's provider.
    pub provider: usize,
    /// The autoscaler's expander.
    pub expander: usize,
    /// The side port.
    pub http: usize,
    /// The probes: what the others leave.
    pub probes: usize,
}

impl Shares {
    /// Of so many open files. Of few, half are kept for the rest of the process, and each listener
    /// gets at least an eighth of the others.
    pub fn of(open_files: usize) -> Self {
        let free = open_files - RESERVED.min(open_files / 2);
        let small = |most: usize| most.min(free / 8).max(1);
        let (provider, expander, http) = (small(PROVIDER), small(EXPANDER), small(HTTP));
        let probes = PROBES.min(free.saturating_sub(provider + expander + http)).max(1);
        Self { provider, expander, http, probes }
    }

    /// Whether probes get all the connections that a fleet of 5,000 nodes needs.
    pub const fn is_ample(&self) -> bool {
        self.probes >= PROBES
    }
}

/// Raises the limit of open files to what the system allows this process, and returns it.
pub fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::warn!(%error, ?current, ?maximum, "the limit of open files cannot be raised");
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_all_listeners_leave_files_for_the_rest() {
        for limit in [64, 200, 256, 1024, 4096, 11_000, 65_536, 1 << 20] {
            let Shares { provider, expander, http, probes } = Shares::of(limit);
            assert!(provider + expander + http + probes <= limit - RESERVED.min(limit / 2), "{limit}");
            assert!(provider.min(expander).min(http) >= 4 && probes >= 20, "{limit}");
        }
        assert_eq!(Shares::of(1024), Shares { provider: 96, expander: 64, http: 64, probes: 544 });
        let ample = Shares::of(usize::MAX);
        assert_eq!(ample, Shares { provider: PROVIDER, expander: EXPANDER, http: HTTP, probes: PROBES });
        assert!(ample.is_ample() && !Shares::of(1024).is_ample());
    }

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
        let limit = raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(limit, maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap()));
    }
}
