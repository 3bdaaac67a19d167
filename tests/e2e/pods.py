"""Pods without a kubelet: what a pod's template says, run as a process of this machine.

Arguments, environment and mounted files are exactly those that the API server has. Only addresses differ: each port of
a pod is one of loopback.
"""

import base64
import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

CONTROL_PLANE, DIR = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
SERVER = (CONTROL_PLANE / "server").read_text().strip()
TLS = ssl.create_default_context(cafile=str(CONTROL_PLANE / "apiserver.crt"))
NAMESPACE = "stoker"
# Every process that was begun.
STARTED = []


class Failed(Exception):
    """A check that does not hold."""


def call(method, path, body=None, content="application/json"):
    """A request as administrator; None where there is nothing at that path."""
    token = (CONTROL_PLANE / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": content}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=TLS))
    try:
        with opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Failed(f"{method} {path}: {error.read().decode()}") from error


def data_of(volume):
    """The files of a volume; None where the kubelet would wait for them."""
    if "configMap" in volume:
        kind, name, items = "configmaps", volume["configMap"]["name"], volume["configMap"].get("items")
    elif "secret" in volume:
        kind, name, items = "secrets", volume["secret"]["secretName"], volume["secret"].get("items")
    else:
        return {}
    for namespace in (NAMESPACE, "kube-system"):
        held = call("GET", f"/api/v1/namespaces/{namespace}/{kind}/{name}")
        if held:
            break
    else:
        return None
    files = {
        key: base64.b64decode(value) if kind == "secrets" else value.encode()
        for key, value in held.get("data", {}).items()
    }
    if items is None:
        return files
    if any(item["key"] not in files for item in items):
        return None
    return {item["path"]: files[item["key"]] for item in items}


def value_of(source):
    """What a variable is filled with from a Secret."""
    name, key = source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
    secret = call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
    return base64.b64decode(secret["data"][key]).decode()


class Pod:
    """What a pod's template says, as a process."""

    def __init__(self, name, spec, account=None, ports=None):
        self.name, self.spec, self.account, self.process = name, spec, account, None
        self.ports = ports or PORTS
        self.dir = DIR / "pods" / name

    def mount(self):
        """Writes the files of the volumes; says whether all are there."""
        for volume in self.spec.get("volumes", []):
            files = data_of(volume)
            if files is None:
                return False
            folder = self.dir / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            for file, content in files.items():
                (folder / file).write_bytes(content)
        return True

    def local(self, text):
        """With mounted paths and the pods' addresses as they are here."""
        mounts = self.spec["containers"][0].get("volumeMounts", [])
        for mount in sorted(mounts, key=lambda mount: -len(mount["mountPath"])):
            text = text.replace(mount["mountPath"], str(self.dir / mount["name"]))
        for port, here in self.ports.items():
            text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{here}").replace(
                f"stoker.{NAMESPACE}.svc:{port}", f"localhost:{here}"
            )
        return text

    def start(self, program, *more):
        """Starts it with its first container's command line; programs of the images are those built here."""
        container = self.spec["containers"][0]
        for file in self.dir.rglob("cloud-config.yaml"):
            file.write_text(self.local(file.read_text()))
        words = container.get("args") or container["command"][1:]
        environment = {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "127.0.0.1", "HOSTNAME": self.name}
        for variable in container.get("env", []):
            environment[variable["name"]] = self.local(variable.get("value") or value_of(variable["valueFrom"]))
        if self.account:
            environment["STOKER_KUBECONFIG"] = str(self.kubeconfig())
        self.log = self.dir / "log"
        self.dir.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [program, *map(self.local, words), *more], env=environment, stdout=log, stderr=log
            )
        STARTED.append(self.process)
        return self

    def kubeconfig(self):
        """Access with a token of its ServiceAccount, and nothing more."""
        namespace, name = self.account.split("/")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token = call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)["status"]["token"]
        config = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here", "namespace": namespace}}],
                "clusters": [
                    {
                        "name": "here",
                        "cluster": {"server": SERVER, "certificate-authority": str(CONTROL_PLANE / "apiserver.crt")},
                    }
                ],
                "users": [{"name": "here", "user": {"token": token}}],
            }
        )
        self.dir.mkdir(parents=True, exist_ok=True)
        path = self.dir / "kubeconfig"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(config)
        return path

    def ends(self, within=60):
        """Waits for its end; what it printed."""
        code = self.process.wait(within)
        said = self.log.read_text()
        if code != 0:
            raise Failed(f"{self.name} ended with {code}: {said}")
        return said


def template(group, plural, name, namespace=NAMESPACE):
    found = call("GET", f"{group}/namespaces/{namespace}/{plural}/{name}")
    if found is None:
        raise Failed(f"no {plural} {namespace}/{name}")
    return found["spec"]["template"]["spec"]


def until(what, look, within):
    end = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"no {what} within {within} s")
        time.sleep(0.1)


def free_ports():
    """Ports of this machine for those of a pod: none that the system gives to connections by itself."""
    ports = {}
    while len(ports) < 4:
        candidate = next(CANDIDATES)
        try:
            socket.create_server(("127.0.0.1", candidate)).close()
            ports[(8086, 8087, 8088, 8089)[len(ports)]] = candidate
        except OSError:
            pass
    return ports


CANDIDATES = (10_000 + (os.getpid() * 97 + more) % 10_000 for more in range(10_000))
PORTS = free_ports()
