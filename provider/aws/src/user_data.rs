//! User data: what a machine's kubelet joins with, so that its Node equals the template of its group.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stoker_core::base::kinds::Taint;
use stoker_core::base::text::quoted;
use stoker_core::policy::{Fault, Path};
use stoker_service::boot;
use stoker_service::suppliers::Launch;
use stoker_service::yaml;
use toml::Table;

use crate::config::{Family, LocalDisks, NodeClass, NodeNames, Reached};

/// Longest user data that EC2 takes, before it is encoded.
const LONGEST: usize = 16_384;

/// What the kubelet evicts pods at. Its own defaults, written down because templates are reckoned with them.
const EVICTION: [(&str, &str); 3] = [("memory.available", "100Mi"), ("nodefs.available", "10%"), ("nodefs.inodesFree", "5%")];

/// Disk that the kubelet reserves.
const RESERVED_DISK: &str = "1Gi";

/// Between the parts of user data for AL2023.
const BOUNDARY: &str = "//";

/// Labels that the kubelet and the cloud controller set: a kubelet may not be given them.
const SET_BY_OTHERS: [&str; 6] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The user data of a launch: a function of it, of its class and of the cluster, so that a retry has the same.
///
/// # Errors
/// Why there is none; in words.
pub(crate) fn user_data(launch: &Launch, class: &NodeClass, name: &str, cluster: &Reached) -> Result<String, String> {
    let labels = labels(launch)?;
    let text = match class.family {
        Family::Al2023 => al2023(launch, &labels, class, name, cluster),
        Family::Bottlerocket => bottlerocket(launch, &labels, class, name, cluster)?,
        // A custom image without user data is a fault of the file.
        Family::Custom => boot::filled(class.user_data.as_deref().unwrap_or_default(), launch, None),
    };
    if text.len() > LONGEST {
        return Err(format!(
            "its user data has {} bytes, and EC2 takes {LONGEST}: shorten userData of the node class",
            text.len()
        ));
    }
    Ok(text)
}

/// Checks `userData` of a class by itself.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub(crate) fn check(family: Family, theirs: &str) -> Result<(), String> {
    if theirs.len() > LONGEST {
        return Err(format!("has {} bytes, and EC2 takes {LONGEST} with what Stoker adds: shorten it", theirs.len()));
    }
    match family {
        Family::Al2023 if is_script(theirs) => Ok(()),
        Family::Al2023 => node_config(theirs),
        Family::Bottlerocket => settings(theirs).map(drop),
        Family::Custom => match boot::left_over(theirs) {
            Some(marker) => Err(format!("has {}, which is not filled in on EC2: take it out", quoted(marker))),
            None if ["@STOKER_LABELS", "@STOKER_TAINTS"].iter().all(|marker| !theirs.contains(marker)) => {
                Err("has neither @STOKER_LABELS@ nor @STOKER_TAINTS@, so its Node would lack the labels and taints of its group: give \
                     them to its kubelet"
                    .to_owned())
            }
            None => Ok(()),
        },
    }
}

/// What every configuration of nodeadm says. nodeadm itself checks its `spec`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeConfig {
    api_version: String,
    kind: String,
}

fn node_config(theirs: &str) -> Result<(), String> {
    let has_head = ["MIME-Version:", "Content-Type:", "--//"].iter().any(|head| theirs.starts_with(head));
    if has_head {
        return Err("is MIME, which Stoker makes of it: write the body of one part alone".to_owned());
    }
    let rules = |config: &NodeConfig| {
        let wrong =
            |key: &str, right: &str| Fault { path: Path::root().key(key), message: format!("is not {right}: write that") };
        let mut faults = Vec::new();
        if !config.api_version.starts_with("node.eks.aws/") {
            faults.push(wrong("apiVersion", "node.eks.aws/v1alpha1"));
        }
        if config.kind != "NodeConfig" {
            faults.push(wrong("kind", "NodeConfig"));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    };
    yaml::load_checked("userData", theirs, rules).map(drop).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(|fault| format!("line {}: {}", fault.line, fault.message)).collect();
        format!("is neither a script, which begins with #!, nor a NodeConfig of nodeadm: {}", faults.join("; "))
    })
}

/// The operator's settings of Bottlerocket.
fn settings(theirs: &str) -> Result<Table, String> {
    theirs.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| theirs.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("is no TOML, which Bottlerocket takes: line {line}: {}", error.message())
    })
}

/// Labels that the kubelet is given.
fn labels(launch: &Launch) -> Result<Vec<(&str, &str)>, String> {
    let all = launch.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let given: Vec<_> = all.filter(|(key, _)| !SET_BY_OTHERS.contains(key)).collect();
    match given.iter().find(|(key, _)| is_kept_from_kubelets(key)) {
        Some((key, _)) => Err(format!("a kubelet may not set the label {key}: take it out of the pool's labels")),
        None => Ok(given),
    }
}

/// Whether a kubelet does not start with that label: those of Kubernetes itself, but for two groups.
fn is_kept_from_kubelets(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    let is_in = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    (is_in("kubernetes.io") || is_in("k8s.io")) && !is_in("kubelet.kubernetes.io") && !is_in("node.kubernetes.io")
}

/// Whether the machine's own disks hold pods.
fn uses_local_disks(launch: &Launch, class: &NodeClass) -> bool {
    class.local_disks == LocalDisks::Raid0 && launch.spec.as_ref().is_some_and(|spec| spec.local_disk.is_some())
}

fn al2023(launch: &Launch, labels: &[(&str, &str)], class: &NodeClass, name: &str, cluster: &Reached) -> String {
    let Reached { endpoint, certificate_authority, service_cidr, .. } = cluster;
    let eviction: serde_json::Map<String, Value> =
        EVICTION.iter().map(|(signal, at)| ((*signal).to_owned(), Value::from(*at))).collect();
    let taint = |taint: &Taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect.as_str() });
    let given: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut spec = json!({
        "cluster": {
            "name": name,
            "apiServerEndpoint": endpoint,
            "certificateAuthority": certificate_authority,
            "cidr": service_cidr,
        },
        "kubelet": {
            "config": {
                "maxPods": launch.pods,
                "kubeReserved": {
                    "cpu": format!("{}m", launch.kept.milli_cpu),
                    "memory": format!("{}Mi", launch.kept.memory.0),
                    "ephemeral-storage": RESERVED_DISK,
                },
                "evictionHard": eviction,
                "registerWithTaints": launch.taints.iter().map(taint).collect::<Vec<_>>(),
            },
            "flags": [format!("--node-labels={}", given.join(","))],
        },
    });
    if uses_local_disks(launch, class) {
        spec["instance"] = json!({ "localStorage": { "strategy": "RAID0" } });
    }
    if class.node_names == NodeNames::InstanceId {
        spec["featureGates"] = json!({ "InstanceIdNodeName": true });
    }
    // JSON is YAML.
    let ours = json!({ "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec });
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    // The last part wins.
    if let Some(theirs) = &class.user_data {
        text += &part(content_type(theirs), theirs);
    }
    text + &part("application/node.eks.aws", &format!("{ours:#}")) + &format!("--{BOUNDARY}--\n")
}

/// What a part of the operator's is: a script, or more configuration of the node.
fn content_type(part: &str) -> &'static str {
    if is_script(part) { "text/x-shellscript; charset=\"us-ascii\"" } else { "application/node.eks.aws" }
}

fn is_script(part: &str) -> bool {
    part.starts_with("#!")
}

fn part(content_type: &str, body: &str) -> String {
    format!("--{BOUNDARY}\nContent-Type: {content_type}\n\n{}\n", body.trim_end())
}

fn bottlerocket(
    launch: &Launch,
    labels: &[(&str, &str)],
    class: &NodeClass,
    name: &str,
    cluster: &Reached,
) -> Result<String, String> {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let table =
        |pairs: Vec<(&str, toml::Value)>| -> Table { pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() };
    let mut taints = Table::new();
    for taint in &launch.taints {
        let value = text(&format!("{}:{}", taint.value, taint.effect.as_str()));
        if let toml::Value::Array(values) = taints.entry(&taint.key).or_insert_with(|| toml::Value::Array(Vec::new())) {
            values.push(value);
        }
    }
    let mut kubernetes = table(vec![
        ("api-server", text(&cluster.endpoint)),
        ("cluster-certificate", text(&cluster.certificate_authority)),
        ("cluster-name", text(name)),
        ("max-pods", toml::Value::Integer(launch.pods.into())),
        ("node-labels", table(labels.iter().map(|(key, value)| (*key, text(value))).collect()).into()),
        ("node-taints", taints.into()),
        ("eviction-hard", table(EVICTION.iter().map(|(signal, at)| (*signal, text(at))).collect()).into()),
    ]);
    let reserved = table(vec![
        ("cpu", text(&format!("{}m", launch.kept.milli_cpu))),
        ("memory", text(&format!("{}Mi", launch.kept.memory.0))),
        ("ephemeral-storage", text(RESERVED_DISK)),
    ]);
    kubernetes.insert("kube-reserved".to_owned(), reserved.into());
    if let Some(dns) = dns_of(&cluster.service_cidr) {
        kubernetes.insert("cluster-dns-ip".to_owned(), text(&dns));
    }
    if class.node_names == NodeNames::InstanceId {
        kubernetes.insert("hostname-override-source".to_owned(), text("instance-id"));
    }
    let mut own = table(vec![("kubernetes", kubernetes.into())]);
    if uses_local_disks(launch, class) {
        let command = |words: &[&str]| toml::Value::Array(words.iter().map(|word| text(word)).collect());
        let bind =
            ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
        let commands = vec![command(&["apiclient", "ephemeral-storage", "init"]), command(&bind)];
        let once = table(vec![
            ("commands", toml::Value::Array(commands)),
            ("essential", toml::Value::Boolean(true)),
            ("mode", text("always")),
        ]);
        own.insert("bootstrap-commands".to_owned(), table(vec![("local-disks", once.into())]).into());
    }
    let ours = table(vec![("settings", own.into())]);
    let theirs = class.user_data.as_deref().unwrap_or_default();
    // A fault of the file, where there is one.
    let mut whole = settings(theirs).map_err(|why| format!("userData of the node class {why}"))?;
    lay_over(&mut whole, ours);
    toml::to_string(&whole).map_err(|error| error.to_string())
}

/// Lays a table over another: what both have, it has the last word on.
fn lay_over(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            (_, value) => drop(below.insert(key, value)),
        }
    }
}

/// The address of the cluster's DNS: the tenth of its services, as EKS has it.
fn dns_of(cidr: &str) -> Option<String> {
    let (address, _) = cidr.split_once('/')?;
    match address.parse().ok()? {
        std::net::IpAddr::V4(first) => Some(std::net::Ipv4Addr::from_bits(first.to_bits().checked_add(10)?).to_string()),
        std::net::IpAddr::V6(first) => Some(std::net::Ipv6Addr::from_bits(first.to_bits().checked_add(10)?).to_string()),
    }
}

#[cfg(test)]
mod tests;
