//! Whose a process is, by its cgroup, and whether the list of processes can be trusted at all.

use std::path::{Path, PathBuf};

/// The inode of the PID namespace that the kernel begins with.
const INITIAL: &str = "pid:[4026531836]";

/// The proc file system.
#[derive(Debug, Clone)]
pub struct Proc(PathBuf);

/// Whose a process is, as far as its cgroup tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The container's id.
    pub container_id: Option<String>,
    /// The pod's UID.
    pub pod_uid: Option<String>,
}

impl Proc {
    /// Where it is mounted.
    pub fn at(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// Whether the probe sees all processes: drivers drop those of other PID namespaces from their lists, silently.
    pub fn sees_all_processes(&self) -> bool {
        std::fs::read_link(self.0.join("self/ns/pid")).is_ok_and(|name| name.as_os_str() == INITIAL)
    }

    /// Whose the process is; nobody's where it has ended.
    pub fn owner(&self, pid: u32) -> Owner {
        std::fs::read_to_string(self.0.join(pid.to_string()).join("cgroup")).map(|text| owner(&text)).unwrap_or_default()
    }

    /// Its command's name, of which the kernel keeps 15 characters; empty where it has ended.
    pub fn name(&self, pid: u32) -> String {
        let name = std::fs::read_to_string(self.0.join(pid.to_string()).join("comm"));
        name.map(|name| name.trim_end().to_owned()).unwrap_or_default()
    }
}

/// Reads `/proc/<pid>/cgroup`: lines `hierarchy:controllers:path`, one of them under cgroup v2, one per hierarchy under v1.
fn owner(text: &str) -> Owner {
    let mut owner = Owner::default();
    for path in text.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
        for part in path.split('/') {
            owner.pod_uid = owner.pod_uid.or_else(|| pod(part));
            owner.container_id = owner.container_id.or_else(|| container(part));
        }
    }
    owner
}

/// `pod<uid>` by the cgroupfs driver, `kubepods[-<class>]-pod<uid with underscores>.slice` by systemd's.
fn pod(part: &str) -> Option<String> {
    let slice = part.strip_suffix(".slice");
    let uid = match slice {
        Some(slice) if slice.starts_with("kubepods") => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        Some(_) => return None,
        None => part.strip_prefix("pod")?.to_owned(),
    };
    // Static pods bear a hash of 32 digits, others a UUID.
    let digits = uid.chars().filter(char::is_ascii_hexdigit).count();
    let dashes = uid.chars().filter(|sign| *sign == '-').count();
    (digits == 32 && digits + dashes == uid.len()).then_some(uid)
}

/// `<id>` by the cgroupfs driver, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope` by systemd's. The id has 64 digits.
fn container(part: &str) -> Option<String> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit_once('-').map_or(part, |(_, id)| id);
    // containerd by systemd without a slice of its own: `<slice>:cri-containerd:<id>`.
    let id = id.rsplit_once(':').map_or(id, |(_, id)| id);
    (id.len() == 64 && id.chars().all(|digit| digit.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "1f2e3d4c-1111-2222-3333-444455556666";

    fn whose(text: &str) -> (Option<String>, Option<String>) {
        let owner = owner(text);
        (owner.pod_uid, owner.container_id)
    }

    #[test]
    fn each_runtime_s_cgroup_tells_pod_and_container() {
        let both = (Some(UID.to_owned()), Some(ID.to_owned()));
        let under = UID.replace('-', "_");
        for text in [
            // cgroup v2 and systemd: containerd, CRI-O, docker; guaranteed pods have no class.
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{ID}.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-pod{under}.slice/crio-{ID}.scope\n"),
            format!("0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{under}.slice/docker-{ID}.scope"),
            // As seen from a cgroup namespace of another pod.
            format!("0::/../../kubepods-pod{under}.slice/cri-containerd-{ID}.scope"),
            // cgroupfs, v2 and v1.
            format!("0::/kubepods/burstable/pod{UID}/{ID}\n"),
            format!("12:pids:/kubepods/besteffort/pod{UID}/{ID}\n11:memory:/kubepods/besteffort/pod{UID}/{ID}\n0::/\n"),
            format!(
                "5:devices:/system.slice/containerd.service/kubepods-burstable-pod{under}.slice:cri-containerd:{ID}\n3:cpu:/kubepods/pod{UID}/{ID}"
            ),
        ] {
            assert_eq!(whose(&text), both, "{text}");
        }
    }

    #[test]
    fn a_static_pod_bears_a_hash() {
        let hash = "d41d8cd98f00b204e9800998ecf8427e";
        assert_eq!(whose(&format!("0::/kubepods.slice/kubepods-pod{hash}.slice/crio-{ID}.scope")).0, Some(hash.to_owned()));
    }

    #[test]
    fn what_is_no_pod_has_no_owner() {
        assert_eq!(whose("0::/system.slice/nvidia-persistenced.service"), (None, None));
        assert_eq!(whose("0::/user.slice/user-1000.slice/session-2.scope"), (None, None));
        assert_eq!(whose(&format!("0::/system.slice/docker-{ID}.scope")), (None, Some(ID.to_owned())));
        assert_eq!(whose("garbage"), (None, None));
    }
}
