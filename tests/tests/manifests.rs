//! The manifests fit the programs that they start, and each other: flags, ports, names.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser as _;
use k8s_openapi::ByteString;
use stoker_core::catalogue::isolation::SHAPE_TAINT;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::policy::rules::karpenter::STEERED_LABEL;
use stoker_core::state::node_status::CONDITION;
use stoker_karpenter::companion::{FIELD_MANAGER, OWNER};
use stoker_service::controllers::tolerations::{OPENED, OPT_IN};
use stoker_service::kube::tokens;
use stoker_service::kube::{DRAINING, HELD, SCALE_DOWN_DISABLED, SYSTEM_NAMESPACES, VERDICT};
use stoker_simulated::registrar::SIMULATED;
use stoker_tests::manifests::{objects, rules};

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| unreachable!("{}: {error}", path.display()))
}

/// The arguments of the one container of a manifest.
fn arguments(manifest: &str) -> Vec<&str> {
    let after = manifest.lines().map(str::trim).skip_while(|line| *line != "args:").skip(1);
    let items = after.filter(|line| !line.starts_with('#')).map_while(|line| line.strip_prefix("- "));
    let arguments: Vec<&str> = items.take_while(|item| !item.starts_with("name:")).collect();
    assert!(!arguments.is_empty(), "{manifest}");
    arguments
}

fn flags<'a>(arguments: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    arguments.iter().filter_map(|argument| argument.split_once('=')).collect()
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

#[test]
fn stoker_is_started_with_flags_that_it_has_on_ports_that_are_open() {
    let deployment = manifest("stoker/deployment.yaml");
    let arguments = arguments(&deployment);
    let parsed = stoker::cli::Cli::try_parse_from(["stoker"].iter().chain(&arguments));
    assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    let (flags, policy) = (flags(&arguments), manifest("stoker/networkpolicy.yaml"));
    for (flag, name) in [
        ("--provider-listen", "provider"),
        ("--expander-listen", "expander"),
        ("--http-listen", "http"),
        ("--probe-listen", "probe"),
    ] {
        let port = port(flags[flag]);
        for line in
            [format!("{{name: {name}, containerPort: {port}}}"), format!("{{name: {name}, port: {port}, targetPort: {name}}}")]
        {
            assert!(deployment.contains(&line), "{flag}: {line}");
        }
        // Of one rule each, or of one that two share, and for somebody by name.
        let rules = policy.split("\n  - ").skip(1).filter(|rule| rule.contains(&format!("{{port: {port}, protocol: TCP}}")));
        let named =
            |rule: &str| rule.starts_with("from:") && rule.contains("podSelector:") && rule.contains("namespaceSelector:");
        assert_eq!(rules.map(named).collect::<Vec<_>>(), [true], "{flag}");
    }
    let (heap, value) = stoker_tests::HEAP;
    assert!(deployment.contains(&format!("{{name: {heap}, value: \"{value}\"}}")), "{heap}");
    // Each file that is named lies under something that is mounted.
    for (flag, path) in flags.iter().filter(|(_, value)| value.starts_with('/')) {
        let mounts = deployment.split("mountPath: ").skip(1).filter_map(|rest| rest.split([',', '}', '\n']).next());
        assert!(mounts.clone().any(|mount| path.starts_with(mount)), "{flag}: {path}");
    }
}

#[test]
fn the_probe_is_started_with_flags_that_it_has_and_finds_stoker() {
    let (daemon_set, deployment) = (manifest("probe/daemonset.yaml"), manifest("stoker/deployment.yaml"));
    let arguments = arguments(&daemon_set);
    let parsed = stoker_probe::cli::Cli::try_parse_from(["stoker-probe"].iter().chain(&arguments));
    assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    let (probe, policy, stokers) = (flags(&arguments), manifest("probe/networkpolicy.yaml"), self::arguments(&deployment));
    let stoker = flags(&stokers);

    // Its metrics, and the door that it knocks at: `<service>.<namespace>.svc`, over TLS.
    let metrics = port(probe["--http"]);
    assert!(daemon_set.contains(&format!("{{name: metrics, containerPort: {metrics}}}")));
    let provider = probe["--provider"];
    assert_eq!(provider, format!("https://stoker.stoker.svc:{}", port(stoker["--probe-listen"])));
    for named in ["kind: Service\n", "name: stoker\n", "namespace: stoker\n"] {
        assert!(deployment.contains(named), "{named}");
    }
    for open in [metrics, port(provider)] {
        assert!(policy.contains(&format!("{{port: {open}, protocol: TCP}}")), "{open}");
    }
    assert!(manifest("probe/namespace.yaml").contains("name: stoker-probe\n"));

    // It shares the host's processes, and may signal none of them.
    assert!(daemon_set.contains("hostPID: true\n"));
    for line in ["runAsNonRoot: true\n", "runAsUser: 65532\n", "allowPrivilegeEscalation: false\n", "drop: [ALL]\n"] {
        assert!(daemon_set.contains(line), "{line}");
    }
    assert!(!daemon_set.contains("privileged:"));

    // Who it is: by a token for the audience that Stoker asks for, of the account that it believes.
    assert_eq!(stoker["--probe-service-account"], "stoker-probe/stoker-probe");
    for line in ["serviceAccountName: stoker-probe\n", "namespace: stoker-probe\n", "audience: stoker-probe\n", "path: token\n"]
    {
        assert!(daemon_set.contains(line), "{line}");
    }
    for file in ["--token-file", "--provider-ca"] {
        assert!(probe[file].starts_with("/var/run/secrets/stoker/"), "{file}");
    }
    assert!(daemon_set.contains("{name: stoker, mountPath: /var/run/secrets/stoker, readOnly: true}"));
    assert!(daemon_set.contains("name: NODE_NAME\n"));
}

/// What the token of an account that only has `manifests/stoker` can do is what every Stoker needs.
#[test]
fn the_documented_install_gives_no_right_to_change_pods_or_to_make_nodes() {
    let (objects, mut stoker) = (objects().unwrap(), 0);
    for rule in rules(&objects).iter().filter(|rule| !rule.file.starts_with("cluster-autoscaler/")) {
        let about = |resource: &str| rule.resources.iter().any(|of| of == resource || of == "*");
        let may = |verbs: &[&str]| rule.verbs.iter().any(|verb| verb == "*" || verbs.contains(&verb.as_str()));
        let base = rule.file == "stoker/rbac.yaml";
        stoker += usize::from(base);
        if base {
            assert!(!about("pods") || !may(&["create", "update", "patch"]), "{rule:?}");
            assert!(!about("nodes") || !may(&["create", "update"]), "{rule:?}");
            assert!(!about("tokenreviews") && !about("namespaces"), "{rule:?}");
        }
        // Isolation is given namespace by namespace, whatever file it is in.
        assert!(rule.kind == "Role" || !about("pods") || !may(&["update", "patch"]), "{rule:?}");
        // Bootstrap tokens are made and never read.
        let of_boot = rule.file == "boot/rbac.yaml" && rule.kind == "Role" && rule.verbs == ["create", "delete"];
        assert!(of_boot || !about("secrets") && !about("serviceaccounts/token"), "{rule:?}");
        assert!(!may(&["impersonate", "bind", "escalate", "deletecollection"]), "{rule:?}");
    }
    assert!(stoker > 0);
}

/// A key that one side spells otherwise would shut a feature off, or leave a door open.
#[test]
fn admission_policies_speak_of_the_account_and_the_keys_that_the_service_uses() {
    let objects = objects().unwrap();
    let of = |kind: &'static str| objects.iter().filter(move |object| object.text("/kind") == kind);
    let account = of("ServiceAccount").find(|object| object.file == "stoker/rbac.yaml").unwrap();
    let user = format!("system:serviceaccount:{}:{}", account.text("/metadata/namespace"), account.text("/metadata/name"));
    let bound: Vec<&str> = of("ValidatingAdmissionPolicyBinding").map(|binding| binding.text("/spec/policyName")).collect();
    let mut texts = BTreeMap::new();
    for policy in of("ValidatingAdmissionPolicy") {
        let name = policy.text("/metadata/name");
        assert!(bound.contains(&name), "{name} has no binding, and so no effect");
        assert_eq!(policy.text("/spec/failurePolicy"), "Fail", "{name}");
        let matches: Vec<_> = policy.list("/spec/matchConditions").iter().map(|one| one["expression"].clone()).collect();
        assert_eq!(matches, [format!("request.userInfo.username == '{user}'")], "{name}");
        texts.insert(name, policy.value["spec"].to_string());
    }
    for binding in of("ValidatingAdmissionPolicyBinding") {
        assert_eq!(binding.value["spec"]["validationActions"], serde_json::json!(["Deny"]));
        assert!(texts.contains_key(binding.text("/spec/policyName")));
    }
    let groups = serde_json::to_value(ByteString(tokens::GROUPS.into())).unwrap();
    let groups = groups.as_str().unwrap();
    for (policy, words) in [
        ("stoker-nodes-update", &[CLUSTER_LABEL, HELD, SCALE_DOWN_DISABLED, DRAINING, VERDICT, CONDITION, SIMULATED][..]),
        ("stoker-nodes-lifecycle", &[CLUSTER_LABEL, SIMULATED][..]),
        ("stoker-pods-update", &[OPT_IN, OPENED, SHAPE_TAINT][..]),
        ("stoker-pods-removal", &SYSTEM_NAMESPACES[..]),
        ("stoker-boot-tokens", &[CLUSTER_LABEL, tokens::TYPE, groups][..]),
        ("stoker-nodes-update", &["karpenter.sh/do-not-disrupt", "stoker.dev/protected"][..]),
        ("stoker-nodeoverlays", &[OWNER, FIELD_MANAGER, "karpenter.sh/nodepool"][..]),
        (
            "stoker-nodepools-update",
            &[STEERED_LABEL, "stoker.dev/limits", "stoker.dev/consolidate-after", "cpu", "nvidia.com/gpu"][..],
        ),
        ("stoker-nodeclaims", &[CLUSTER_LABEL, "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"][..]),
    ] {
        for word in words {
            assert!(texts[policy].contains(&format!("'{word}'")), "{policy}: {word}");
        }
    }
    let list = texts["stoker-pods-removal"].split(['[', ']']).find(|part| part.contains("kube-system")).unwrap();
    assert_eq!(list.split(',').count(), SYSTEM_NAMESPACES.len(), "{list}");
}

#[test]
fn a_flag_that_is_gone_is_noticed() {
    let text = "        args:\n        - serve\n        # A comment.\n        - --no-such-flag=1\n        ports:\n        - {name: http}\n";
    assert_eq!(arguments(text), ["serve", "--no-such-flag=1"]);
    assert!(stoker::cli::Cli::try_parse_from(["stoker"].iter().chain(&arguments(text))).is_err());
}
