#!/usr/bin/env python3
"""The chart on a real API server: installed, upgraded, tested, uninstalled, with its pods run as processes.

    chart.py CONTROL_PLANE DIR HELM STOKER MODEL POSTGRES

CONTROL_PLANE is what control_plane_start left, POSTGRES the address of an empty database. There is no kubelet and no controller: what a Job, the test's pod and
the two Deployments would run is run here (pods.py). Prints a line for each check, and `N passed, N failed` last.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from pods import CONTROL_PLANE, DIR, NAMESPACE, STARTED, Failed, Pod, call, free_ports, template, until
from used_rights import used

HELM, STOKER, MODEL = (pathlib.Path(argument).resolve() for argument in sys.argv[3:6])
POSTGRES = sys.argv[6]
CHART = pathlib.Path(__file__).resolve().parents[2] / "manifests/chart"
# Every switch that needs no kind of another project, and a world whose machines boot within seconds.
VALUES = """
supplier: {kind: simulated}
clusterAutoscaler: {enabled: true}
probes: {enabled: true}
rbac: {isolation: [default], buffers: true, boot: true, steering: true, karpenter: true}
extraArgs: [--world=/etc/stoker/policy/world.yaml]
policy:
  inline: |
    apiVersion: stoker.dev/v1alpha1
    kind: Policy
    clusterName: chart
    pools:
    - name: inference
      workload: inference
      gpu: { models: [L4], count: 1 }
      where: { clouds: [aws], regions: [us-east-1] }
      capacity: { prefer: [on-demand] }
      limits: { maxNodes: 4 }
  files:
    world.yaml: |
      seed: 7
      boot: { medianSeconds: 3, sigma: 0, clouds: {} }
      spells: { spotShare: 0 }
"""
# Two replicas. Of the suppliers that can be shared, Karpenter is the one that needs no cloud.
REPLICAS = """
replicas: 2
supplier: {kind: karpenter}
state: {postgres: {secret: stoker-journal}}
policy:
  inline: |
    apiVersion: stoker.dev/v1alpha1
    kind: Policy
    clusterName: replicas
    suppliers: [{ name: karpenter, kind: karpenter }]
    pools:
    - name: inference
      workload: inference
      nodeClass: gpu
      gpu: { models: [L4], count: 1 }
      where: { clouds: [aws], regions: [us-east-1] }
      capacity: { prefer: [on-demand] }
      limits: { maxNodes: 4 }
"""
# How long nobody may lead after a crash.
FAIL_OVER = 20
# Every kind that the chart has an object of, by its path in all namespaces.
KINDS = {
    "/api/v1": "configmaps persistentvolumeclaims pods resourcequotas secrets serviceaccounts services".split(),
    "/apis/apps/v1": ["daemonsets", "deployments"],
    "/apis/batch/v1": ["cronjobs", "jobs"],
    "/apis/networking.k8s.io/v1": ["networkpolicies"],
    "/apis/rbac.authorization.k8s.io/v1": ["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    "/apis/admissionregistration.k8s.io/v1": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
}


def helms_environment():
    """Nothing of the user's own Helm."""
    homes = {f"HELM_{kind}_HOME": str(DIR / "helm" / kind) for kind in ("CONFIG", "CACHE", "DATA")}
    return dict(os.environ, KUBECONFIG=str(CONTROL_PLANE / "kubeconfig"), NO_PROXY="*", **homes)


def helm(*arguments, within=60):
    """Helm's answer; fails with what it says."""
    ran = subprocess.run(
        [HELM, *arguments], env=helms_environment(), capture_output=True, text=True, timeout=within, check=False
    )
    if ran.returncode != 0:
        raise Failed("\n".join(line for line in ran.stderr.splitlines() if "symbolic link" not in line))
    return ran.stdout


def ours():
    """Every object with stoker in its name, but for Helm's records: {kind/namespace/name: object}."""
    found = {}
    for group, plurals in KINDS.items():
        for plural in plurals:
            for one in call("GET", f"{group}/{plural}")["items"]:
                about = one["metadata"]
                key = "/".join(filter(None, [plural, about.get("namespace"), about["name"]]))
                if "stoker" in key and not about["name"].startswith("sh.helm.release"):
                    found[key] = one
    return found


def certs_job(revision):
    """The Job of a revision; what it prints."""
    spec = template("/apis/batch/v1", "jobs", f"stoker-certs-{revision}")
    return Pod(f"certs-{revision}", spec, f"{NAMESPACE}/{spec['serviceAccountName']}").start(STOKER).ends()


def install():
    """helm install without --wait, and all objects of the manifest."""
    RUNS["installed"] = time.monotonic()
    helm("install", "stoker", CHART, "--namespace", NAMESPACE, "--create-namespace", "--values", DIR / "values.yaml")
    there = ours()
    for key in (
        "deployments/stoker/stoker",
        "deployments/kube-system/cluster-autoscaler-stoker",
        "daemonsets/stoker-probe/stoker-probe",
        "persistentvolumeclaims/stoker/stoker-state",
        "secrets/stoker/stoker-tls",
        "secrets/kube-system/stoker-client",
        "configmaps/stoker-probe/stoker-ca",
        "jobs/stoker/stoker-certs-1",
        "clusterroles/stoker-simulated",
        "clusterroles/stoker-karpenter",
        "roles/default/stoker-isolation",
        "roles/kube-system/stoker-boot",
        "cronjobs/stoker/stoker-karpenter-clean",
        "validatingadmissionpolicies/stoker-pods-removal",
    ):
        if key not in there:
            raise Failed(f"no {key} among {sorted(there)}")
    if Pod("waits", template("/apis/apps/v1", "deployments", "stoker")).mount():
        raise Failed("the pod would start before it has certificates")


def first_gpu_pod():
    """From helm install to a bound GPU pod, with the Job, Stoker and the autoscaler run as their pods would be."""
    said = certs_job(1)
    if "made, because there was none" not in said:
        raise Failed(said)
    stoker = Pod("stoker", template("/apis/apps/v1", "deployments", "stoker"), f"{NAMESPACE}/stoker")
    autoscaler = Pod(
        "autoscaler",
        template("/apis/apps/v1", "deployments", "cluster-autoscaler-stoker", "kube-system"),
        "kube-system/cluster-autoscaler-stoker",
    )
    RUNS["pods"] = [stoker, autoscaler]
    pod = {
        "metadata": {"name": "chart-gpu"},
        "spec": {
            "nodeSelector": {"stoker.dev/pool": "inference"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "work", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }
    call("POST", "/api/v1/namespaces/default/pods", pod)
    for one in RUNS["pods"]:
        if not one.mount():
            raise Failed(f"{one.name}: a file that it mounts is not there")
    stoker.start(STOKER)
    autoscaler.start(MODEL, f"--kubeconfig={autoscaler.kubeconfig()}", "--address=127.0.0.1:0")

    def bound():
        for one in RUNS["pods"]:
            if one.process.poll() is not None:
                raise Failed(f"{one.name} ended: {one.log.read_text()[-2000:]}")
        return call("GET", "/api/v1/namespaces/default/pods/chart-gpu")["spec"].get("nodeName")

    node = until("bound GPU pod", bound, 120)
    print(f"       helm install to a bound GPU pod: {time.monotonic() - RUNS['installed']:.1f} s, on {node}")


def helm_test():
    """helm test, whose pod asks /readyz and the expander."""
    running = subprocess.Popen(
        [HELM, "test", "stoker", "--namespace", NAMESPACE, "--timeout", "60s"],
        env=helms_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(running)
    pod = until("test's pod", lambda: call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/stoker-test"), 30)
    RUNS["test"] = pod["spec"]
    played = Pod("test", pod["spec"])
    if not played.mount():
        raise Failed("the authority of the expander's certificate is not there")
    said = played.start(STOKER).ends()
    if "expander" not in said or "ready" not in said:
        raise Failed(said)
    call(
        "PATCH",
        f"/api/v1/namespaces/{NAMESPACE}/pods/stoker-test/status",
        {"status": {"phase": "Succeeded"}},
        "application/merge-patch+json",
    )
    output, _ = running.communicate(timeout=60)
    if running.returncode != 0 or "Succeeded" not in output:
        raise Failed(output)
    if call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/stoker-test"):
        raise Failed("the test's pod stays, and no helm uninstall would delete it")


def pod_security():
    """Every pod of Stoker's namespace is admitted by the strictest profile of Pod Security."""
    strict = {"metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    call("POST", "/api/v1/namespaces", strict)
    cron = call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/stoker-karpenter-clean")
    specs = {
        "stoker": template("/apis/apps/v1", "deployments", "stoker"),
        "autoscaler": template("/apis/apps/v1", "deployments", "cluster-autoscaler-stoker", "kube-system"),
        "certs": template("/apis/batch/v1", "jobs", "stoker-certs-1"),
        "clean": cron["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        "test": RUNS["test"],
    }
    for name, spec in specs.items():
        pod = {"metadata": {"name": name}, "spec": dict(spec, nodeName="")}
        call("POST", "/api/v1/namespaces/restricted/pods?dryRun=All", pod)
        outside = [one["name"] for one in spec["containers"] if not one["securityContext"]["readOnlyRootFilesystem"]]
        if outside or "limits" not in spec["containers"][0].get("resources", {}) and name != "autoscaler":
            raise Failed(f"{name}: writes to its image, or has no limits")


def second_release():
    """Neither in this namespace nor in another, with the cure."""
    for namespace in (NAMESPACE, "elsewhere"):
        try:
            helm(
                "install",
                "other",
                CHART,
                "--namespace",
                namespace,
                "--create-namespace",
                "--set",
                "supplier.kind=simulated",
            )
        except Failed as failed:
            if "this cluster has Stoker already, as release stoker in namespace stoker" not in str(failed):
                raise
        else:
            raise Failed(f"a second release was installed in {namespace}")


def allowed(account, verb, group, resource, namespace="", name=""):
    resource, _, subresource = resource.partition("/")
    namespace_of, name_of = account.split("/")
    answer = call(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace_of}:{name_of}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace_of}", "system:authenticated"],
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": subresource,
                    "namespace": namespace,
                    "name": name,
                },
            },
        },
    )
    return answer["status"]["allowed"]


# What the code calls: group, resource, verbs, and where: a namespace, or an object of one.
CALLED = {
    "stoker/stoker": """
        core nodes get,list,watch,patch,delete,create
        core nodes/status patch
        core pods list,watch,delete
        core pods patch default
        core pods/eviction create team
        core namespaces list,watch
        core events list,watch
        core secrets create,delete kube-system
        core podtemplates get,list,create,patch,delete stoker
        events.k8s.io events create default
        authentication.k8s.io tokenreviews create
        karpenter.sh nodeclaims list,watch,create,delete
        karpenter.sh nodepools get,list,watch,patch
        karpenter.sh nodeoverlays list,watch,create,patch,delete
        karpenter.k8s.aws ec2nodeclasses get
        coordination.k8s.io leases get,create,patch stoker/stoker-karpenter
        autoscaling.x-k8s.io capacitybuffers get,list,create,patch,delete stoker
    """,
    "stoker/stoker-certs": """
        core secrets get,patch stoker/stoker-tls
        core secrets get,patch kube-system/stoker-client
        core configmaps get,patch stoker-probe/stoker-ca
    """,
}
# What they must not be able to do.
NEVER = {
    "stoker/stoker": """
        core secrets get,list,watch,patch,update,create stoker
        core secrets get,list kube-system
        core pods create,update stoker
        core pods patch team
        core pods/exec create team
        core nodes update
        core configmaps get,create stoker
        core serviceaccounts/token create stoker
        core podtemplates create team
        apps deployments get,patch stoker
        rbac.authorization.k8s.io clusterroles create,bind,escalate
    """,
    "stoker/stoker-certs": """
        core secrets create,list,delete,update stoker
        core secrets get,patch stoker/other
        core secrets create,list,get,patch kube-system
        core configmaps create,list stoker-probe
        core nodes list
        core pods list stoker
    """,
    "stoker-probe/stoker-probe": """
        core pods list,get stoker-probe
        core nodes get
    """,
}


def rows(table):
    """(group, resource, verb, namespace, name) of each verb of a table."""
    for line in table.strip().splitlines():
        group, resource, verbs, place = (line.split() + [""])[:4]
        namespace, _, name = place.partition("/")
        for verb in verbs.split(","):
            yield "" if group == "core" else group, resource, verb, namespace, name


def rights():
    """Each verb that the code calls is granted, and what nobody calls is not."""
    for tables, wanted in ((CALLED, True), (NEVER, False)):
        for account, table in tables.items():
            for group, resource, verb, namespace, name in rows(table):
                if allowed(account, verb, group, resource, namespace, name) != wanted:
                    may = "may not" if wanted else "may"
                    raise Failed(f"{account} {may} {verb} {resource}.{group} {namespace}/{name}")
    for account, table in CALLED.items():
        named = {row[:3] for row in rows(table)}
        granted = granted_to(account)
        if granted != named:
            raise Failed(f"granted and not called: {granted - named}; called and not granted: {named - granted}")
        # What was called since the install, by the API server's own log.
        calls = used(account, [CONTROL_PLANE / "audit.log"])
        if not calls or calls - named:
            raise Failed(f"{account} called {calls - named or 'nothing'}")


def granted_to(account):
    """Every verb of every role that is bound to an account."""
    namespace_of, name_of = account.split("/")
    group, found = "/apis/rbac.authorization.k8s.io/v1", set()
    for plural, roles in (("clusterrolebindings", "clusterroles"), ("rolebindings", "roles")):
        for binding in call("GET", f"{group}/{plural}")["items"]:
            subjects = [(one["kind"], one.get("namespace"), one["name"]) for one in binding.get("subjects", [])]
            if ("ServiceAccount", namespace_of, name_of) not in subjects:
                continue
            place = f"/namespaces/{binding['metadata']['namespace']}" if roles == "roles" else ""
            for rule in call("GET", f"{group}{place}/{roles}/{binding['roleRef']['name']}")["rules"]:
                found |= {(g, r, v) for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    return found


def nothing_refused():
    """What ran had every right that it used."""
    for one in RUNS["pods"]:
        refused = [line for line in one.log.read_text().splitlines() if " is forbidden: " in line]
        if refused:
            raise Failed(refused[0])


def upgrade():
    """helm upgrade changes what its values change, and leaves certificates that are valid."""
    before = call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/stoker-tls")["data"]
    helm("upgrade", "stoker", CHART, "--namespace", NAMESPACE, "--reuse-values", "--set", "debug=true")
    args = template("/apis/apps/v1", "deployments", "stoker")["containers"][0]["args"]
    if "--debug" not in args:
        raise Failed(f"{args}")
    said = certs_job(2)
    if "left as they are" not in said:
        raise Failed(said)
    if call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/stoker-tls")["data"] != before:
        raise Failed("the certificates were replaced, or emptied")
    if call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/stoker-certs-1"):
        raise Failed("the Job of the first revision is still there")


def bad_values():
    """A key that does not exist, and one that contradicts another, change nothing."""
    before = template("/apis/apps/v1", "deployments", "stoker")
    for words, values in (
        ("'replicaCount' not allowed", "replicaCount=1"),
        ("/state/postgres/secret", "replicas=2"),
        ("remove one of them", "policy.existingConfigMap=mine"),
        ("Secret stoker-tls, which the chart made and would now delete", "tls.mode=existingSecret"),
        (
            "ConfigMap stoker-policy, which the chart made",
            "policy.inline=,policy.files=null,policy.existingConfigMap=stoker-policy",
        ),
    ):
        try:
            helm("upgrade", "stoker", CHART, "--namespace", NAMESPACE, "--reuse-values", "--set", values)
        except Failed as failed:
            if words not in str(failed):
                raise
        else:
            raise Failed(f"{values} was accepted")
    if template("/apis/apps/v1", "deployments", "stoker") != before:
        raise Failed("a refused upgrade changed the Deployment")


def faulty_policy():
    """The container that checks the policy ends with each fault and its line; Stoker does not start with it either."""
    values = DIR / "faulty.yaml"
    values.write_text(
        VALUES.replace("maxNodes: 4", "maxNodes: many").replace("policy:\n", "policy:\n  checkAtInstall: true\n")
    )
    helm("upgrade", "stoker", CHART, "--namespace", NAMESPACE, "--values", values)
    spec = template("/apis/apps/v1", "deployments", "stoker")
    first = dict(spec, containers=spec["initContainers"])
    pod = Pod("policy-check", first)
    pod.mount()
    pod.start(STOKER)
    code, said = pod.process.wait(60), pod.log.read_text()
    if code != 3 or "maxNodes" not in said or "policy.yaml:" not in said:
        raise Failed(f"{code}: {said}")
    helm("rollback", "stoker", "2", "--namespace", NAMESPACE)
    if "initContainers" in template("/apis/apps/v1", "deployments", "stoker"):
        raise Failed("helm rollback left the faulty policy")


def uninstall():
    """helm uninstall leaves the volume's claim, and nothing else."""
    for one in reversed(RUNS["pods"]):
        one.process.terminate()
        one.process.wait(30)
    nothing_refused()
    helm("uninstall", "stoker", "--namespace", NAMESPACE)
    # Nobody here ends a namespace that is deleted, nor what a Job or a Deployment owns.
    probes = call("GET", "/api/v1/namespaces/stoker-probe")
    if probes is not None and "deletionTimestamp" not in probes["metadata"]:
        raise Failed("the namespace of the probes stays")
    left = ours()
    if list(left) != ["persistentvolumeclaims/stoker/stoker-state"]:
        raise Failed(f"left: {sorted(left)}")


def again():
    """The same release takes the claim that was left, and what kubectl applied only where it is asked to."""
    probes = call("GET", "/api/v1/namespaces/stoker-probe")
    if probes is not None:
        probes["spec"]["finalizers"] = []
        call("PUT", "/api/v1/namespaces/stoker-probe/finalize", probes)
    call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "stoker"}})
    call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "stoker"}, "rules": []})
    arguments = ["install", "stoker", CHART, "--namespace", NAMESPACE, "--values", DIR / "values.yaml"]
    try:
        helm(*arguments)
    except Failed as failed:
        if "cannot be imported into the current release" not in str(failed):
            raise
    else:
        raise Failed("objects of somebody else's were taken")
    helm(*arguments, "--take-ownership", "--force-conflicts")
    if not call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/stoker")["rules"]:
        raise Failed("the role that was there is as it was")
    helm("uninstall", "stoker", "--namespace", NAMESPACE)


def replicas():
    """The chart with its journal in PostgreSQL: one replica leads, the other once that one is killed."""
    values = DIR / "replicas.yaml"
    values.write_text(REPLICAS)
    secret = {"metadata": {"name": "stoker-journal"}, "stringData": {"url": POSTGRES}}
    call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    helm("install", "stoker", CHART, "--namespace", NAMESPACE, "--values", values)
    certs_job(1)
    deployment = call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/stoker")["spec"]
    if deployment["replicas"] != 2:
        raise Failed(f"{deployment['replicas']} replicas")
    spec, pods = deployment["template"]["spec"], []
    for number in range(2):
        pod = Pod(f"replica-{number}", spec, f"{NAMESPACE}/stoker", free_ports())
        if not pod.mount():
            raise Failed(f"{pod.name}: a file that it mounts is not there")
        pods.append(pod.start(STOKER))
    RUNS["pods"] = pods

    def leads(pod):
        """Whether its readiness probe is answered by 200."""
        if pod.process.poll() is not None:
            raise Failed(f"{pod.name} ended: {pod.log.read_text()[-2000:]}")
        asked = subprocess.run(
            [STOKER, "ready", "--url", f"http://127.0.0.1:{pod.ports[8088]}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return asked.returncode == 0

    def leader():
        ready = [pod for pod in pods if leads(pod)]
        if len(ready) > 1:
            raise Failed("both replicas are ready")
        return ready[0] if ready else None

    first = until("replica that leads", leader, 60)
    pods.remove(first)
    first.process.kill()
    first.process.wait()
    begun = time.monotonic()
    second = until("other replica that leads", leader, FAIL_OVER)
    print(f"       {first.name} killed: {second.name} leads after {time.monotonic() - begun:.1f} s")
    for pod in pods:
        pod.process.terminate()
        pod.process.wait(30)
    nothing_refused()
    helm("uninstall", "stoker", "--namespace", NAMESPACE)
    # The claim is that of the release with a volume; the Secret was there before.
    left = set(ours()) - {"persistentvolumeclaims/stoker/stoker-state", "secrets/stoker/stoker-journal"}
    if left:
        raise Failed(f"left: {sorted(left)}")


# What was begun, for those that come after.
RUNS = {}
CHECKS = [
    ("install", install),
    ("first-gpu-pod", first_gpu_pod),
    ("helm-test", helm_test),
    ("pod-security", pod_security),
    ("second-release", second_release),
    ("rights", rights),
    ("upgrade", upgrade),
    ("bad-values", bad_values),
    ("faulty-policy", faulty_policy),
    ("uninstall", uninstall),
    ("install-again", again),
    ("two-replicas", replicas),
]


def main():
    DIR.mkdir(parents=True, exist_ok=True)
    (DIR / "values.yaml").write_text(VALUES)
    passed = failed = 0
    try:
        for name, check in CHECKS:
            begun = time.monotonic()
            try:
                check()
                passed += 1
                word, why = "ok", ""
            except (Failed, OSError, subprocess.SubprocessError, KeyError) as error:
                failed += 1
                word, why = "FAILED", f"       {type(error).__name__}: {error}\n"
            print(f"{word:6} {'chart':25} {name:21} {time.monotonic() - begun:6.1f} s\n{why}", end="", flush=True)
    finally:
        for process in STARTED:
            if process.poll() is None:
                process.kill()
                process.wait()
    print(f"{passed} passed, {failed} failed")
    return failed == 0


if __name__ == "__main__":
    # What was started ends with this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    sys.exit(0 if main() else 1)
