use serde_json::Value;
use stoker_core::market::offer::CapacityType;
use stoker_service::suppliers::Launch;
use toml::Table;

use super::{LONGEST, dns_of, user_data};
use crate::testing::{class, golden, launch, reached};

/// Labels of a pool that shares its GPUs by time.
const SHARED: [(&str, &str); 4] = [
    ("nvidia.com/device-plugin.config", "time-slicing-4"),
    ("nvidia.com/gpu.product", "NVIDIA-L4-SHARED"),
    ("nvidia.com/gpu.replicas", "4"),
    ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
];

const AL2023: &str = "";
const BOTTLEROCKET: &str = "    image: { family: bottlerocket }\n";
const CUSTOM: &str = "    image: { family: custom, id: ami-1 }\n    userData: |\n      #!/bin/sh\n      join --labels \
                      @STOKER_LABELS@ --taints @STOKER_TAINTS@ --max-pods @STOKER_MAX_PODS@ --kube-reserved \
                      @STOKER_KUBE_RESERVED@\n";

fn ordered(instance_type: &str) -> Launch {
    launch(instance_type, CapacityType::OnDemand, &[])
}

fn made(launch: &Launch, fields: &str) -> String {
    user_data(launch, &class(fields), "prod", &reached()).unwrap()
}

fn refused(launch: &Launch, fields: &str) -> String {
    user_data(launch, &class(fields), "prod", &reached()).unwrap_err()
}

/// The parts of a MIME text: media types and bodies.
fn parts(text: &str) -> Vec<(String, String)> {
    let (head, rest) = text.split_once("\n\n").unwrap();
    assert!(head.starts_with("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\""), "{head}");
    let (parts, end) = rest.rsplit_once("--//--\n").unwrap();
    assert_eq!(end, "");
    let of = |part: &str| {
        let (head, body) = part.split_once("\n\n").unwrap();
        (head.trim().strip_prefix("Content-Type: ").unwrap().to_owned(), body.to_owned())
    };
    parts.split("--//\n").filter(|part| !part.is_empty()).map(of).collect()
}

/// The last part, which has the last word.
fn node_config(text: &str) -> Value {
    let (media, body) = parts(text).pop().unwrap();
    assert_eq!(media, "application/node.eks.aws");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn user_data_is_what_it_was() {
    let cases = [
        ("al2023-g6", ordered("g6.xlarge"), AL2023),
        ("al2023-p5-efa", ordered("p5.48xlarge"), "    efa: all\n"),
        ("al2023-g5g-arm64", ordered("g5g.xlarge"), AL2023),
        ("al2023-shared", launch("g6.xlarge", CapacityType::Spot, &SHARED), AL2023),
        ("bottlerocket-g6", ordered("g6.xlarge"), BOTTLEROCKET),
        ("bottlerocket-p5-efa", ordered("p5.48xlarge"), "    image: { family: bottlerocket }\n    efa: all\n"),
        ("bottlerocket-g5g-arm64", ordered("g5g.xlarge"), BOTTLEROCKET),
        ("custom-g6", ordered("g6.xlarge"), CUSTOM),
        ("custom-shared", launch("g6.xlarge", CapacityType::Spot, &SHARED), CUSTOM),
    ];
    for (name, launch, fields) in cases {
        let text = made(&launch, fields);
        assert!(text.len() < LONGEST, "{name}");
        assert_eq!(text, made(&launch.clone(), fields), "{name}: a retry has other bytes");
        golden("user_data", name, &text);
    }
}

#[test]
fn a_kubelet_of_al2023_reserves_and_runs_what_its_group_promised() {
    for instance_type in ["g4dn.xlarge", "g5g.xlarge", "g6.xlarge", "g6.12xlarge", "p4d.24xlarge", "p5.48xlarge"] {
        let launch = launch(instance_type, CapacityType::OnDemand, &SHARED);
        let config = node_config(&made(&launch, AL2023));
        let kubelet = &config["spec"]["kubelet"]["config"];
        assert_eq!(kubelet["maxPods"], launch.pods, "{instance_type}");
        assert_eq!(kubelet["kubeReserved"]["cpu"], format!("{}m", launch.kept.milli_cpu));
        assert_eq!(kubelet["kubeReserved"]["memory"], format!("{}Mi", launch.kept.memory.0));
        assert_eq!(kubelet["registerWithTaints"][0]["key"], "nvidia.com/gpu");
        let flag = config["spec"]["kubelet"]["flags"][0].as_str().unwrap();
        let labels: Vec<&str> = flag.strip_prefix("--node-labels=").unwrap().split(',').collect();
        assert!(labels.contains(&"nvidia.com/device-plugin.config=time-slicing-4"), "{labels:?}");
        assert!(labels.iter().all(|label| !label.contains("kubernetes.io/")), "{labels:?}");
        let has_disks = launch.spec.as_ref().unwrap().local_disk.is_some();
        assert_eq!(config["spec"]["instance"]["localStorage"]["strategy"] == "RAID0", has_disks, "{instance_type}");
    }
}

#[test]
fn a_kubelet_of_bottlerocket_reserves_and_runs_what_its_group_promised() {
    for instance_type in ["g4dn.xlarge", "g5g.xlarge", "g6.xlarge", "p4d.24xlarge", "p5.48xlarge"] {
        let launch = ordered(instance_type);
        let settings: Table = made(&launch, BOTTLEROCKET).parse().unwrap();
        let kubernetes = &settings["settings"]["kubernetes"];
        assert_eq!(kubernetes["max-pods"].as_integer(), Some(launch.pods.into()), "{instance_type}");
        assert_eq!(kubernetes["kube-reserved"]["memory"].as_str(), Some(format!("{}Mi", launch.kept.memory.0).as_str()));
        assert_eq!(kubernetes["kube-reserved"]["cpu"].as_str(), Some(format!("{}m", launch.kept.milli_cpu).as_str()));
        assert_eq!(kubernetes["node-taints"]["nvidia.com/gpu"][0].as_str(), Some("true:NoSchedule"));
        let labels = kubernetes["node-labels"].as_table().unwrap();
        assert!(
            labels.contains_key("stoker.dev/gpu") && labels.keys().all(|key| !key.contains("kubernetes.io/")),
            "{labels:?}"
        );
    }
}

#[test]
fn local_disks_that_are_left_alone_hold_no_pods() {
    assert!(!made(&ordered("g6.xlarge"), "    localDisks: unused\n").contains("RAID0"));
    let unused = "    image: { family: bottlerocket }\n    localDisks: unused\n";
    assert!(!made(&ordered("g6.xlarge"), unused).contains("bootstrap-commands"));
}

#[test]
fn the_operators_part_stands_before_stokers() {
    let script = made(&ordered("g6.xlarge"), "    userData: \"#!/bin/sh\\necho hello\\n\"\n");
    let media: Vec<String> = parts(&script).into_iter().map(|(media, _)| media).collect();
    assert_eq!(media, ["text/x-shellscript; charset=\"us-ascii\"", "application/node.eks.aws"]);
    let theirs = "apiVersion: node.eks.aws/v1alpha1\\nkind: NodeConfig\\nspec: { kubelet: { config: { maxPods: 7 } } }\\n";
    let config = made(&ordered("g6.xlarge"), &format!("    userData: \"{theirs}\"\n"));
    let parts = parts(&config);
    assert_eq!(parts.iter().map(|(media, _)| media.as_str()).collect::<Vec<_>>(), ["application/node.eks.aws"; 2]);
    assert!(parts[0].1.contains("maxPods: 7"));
    // The last part wins.
    assert_eq!(node_config(&config)["spec"]["kubelet"]["config"]["maxPods"], 58);
}

#[test]
fn the_operators_settings_lie_under_stokers() {
    let theirs = "    image: { family: bottlerocket }\n    userData: |\n      [settings.kubernetes]\n      max-pods = 7\n      \
                  registry-qps = 50\n      [settings.kubernetes.node-labels]\n      team = \"ml\"\n      [settings.motd]\n      \
                  text = \"hello\"\n";
    let launch = ordered("g6.xlarge");
    let settings: Table = made(&launch, theirs).parse().unwrap();
    let kubernetes = &settings["settings"]["kubernetes"];
    assert_eq!((kubernetes["max-pods"].as_integer(), kubernetes["registry-qps"].as_integer()), (Some(58), Some(50)));
    assert_eq!(kubernetes["node-labels"]["team"].as_str(), Some("ml"));
    assert_eq!(kubernetes["node-labels"]["stoker.dev/cluster"].as_str(), Some("prod"));
    assert_eq!(settings["settings"]["motd"]["text"].as_str(), Some("hello"));
}

#[test]
fn labels_that_keep_a_kubelet_from_starting_are_refused() {
    for key in ["node-role.kubernetes.io/gpu", "kubernetes.io/team", "k8s.io/team", "node-restriction.kubernetes.io/x"] {
        for fields in [AL2023, BOTTLEROCKET, CUSTOM] {
            let error = refused(&launch("g6.xlarge", CapacityType::OnDemand, &[(key, "x")]), fields);
            assert!(error.contains(&format!("may not set the label {key}")), "{error}");
        }
    }
    for key in
        ["node.kubernetes.io/team", "x.node.kubernetes.io/team", "kubelet.kubernetes.io/team", "karpenter.k8s.aws/x", "team"]
    {
        let text = made(&launch("g6.xlarge", CapacityType::OnDemand, &[(key, "x")]), AL2023);
        assert!(text.contains(&format!("{key}=x")), "{text}");
    }
}

#[test]
fn user_data_that_ec2_does_not_take_is_refused() {
    let long = format!("    userData: \"#!/bin/sh {}\"\n", "x".repeat(LONGEST - 20));
    let error = refused(&ordered("g6.xlarge"), &long);
    assert!(error.contains("EC2 takes 16384: shorten userData"), "{error}");
}

#[test]
fn nodes_are_named_by_their_id_where_the_class_says_so() {
    let config = node_config(&made(&ordered("g6.xlarge"), "    nodeNames: instance-id\n"));
    assert_eq!(config["spec"]["featureGates"]["InstanceIdNodeName"], true);
    let text = made(&ordered("g6.xlarge"), "    image: { family: bottlerocket }\n    nodeNames: instance-id\n");
    assert!(text.contains("hostname-override-source = \"instance-id\""), "{text}");
}

#[test]
fn the_dns_of_a_cluster_is_the_tenth_of_its_services() {
    assert_eq!(dns_of("10.100.0.0/16").as_deref(), Some("10.100.0.10"));
    assert_eq!(dns_of("fd00:1::/108").as_deref(), Some("fd00:1::a"));
    assert_eq!((dns_of(""), dns_of("10.100.0.0"), dns_of("255.255.255.255/32")), (None, None, None));
}
