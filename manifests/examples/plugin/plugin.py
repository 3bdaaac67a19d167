#!/usr/bin/env python3
"""A supplier plugin for Stoker over a pretend cloud: start from it for a cloud of your own.

    pip install grpcio grpcio-tools
    python3 plugin.py --listen unix:///tmp/lambda.sock --state /tmp/lambda.json

`Cloud` is the pretend cloud; your plugin calls yours instead. `Supplier` speaks the protocol.
"Rule 1" and so on are the rules at the top of supplier.proto, each where it is kept.
"""
import argparse, fcntl, hashlib, importlib, json, os, signal, sys, tempfile, threading, time
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parent / "../../../proto/proto/supplier.proto"
# Some of Lambda, as pricing/tables/gpu-clouds.csv has it: its only region and zone are "global". The last is sold out.
LAMBDA = ["global/global/lambda-quadro-rtx-6000-on-demand/on-demand=8",
          "global/global/lambda-a10-on-demand/on-demand=8",
          "global/global/lambda-h100-sxm-on-demand/on-demand=2",
          "global/global/lambda-gh200-on-demand/on-demand=0"]
CAPACITY_TYPES = {"reserved": 1, "spot": 2, "on-demand": 3}
PENDING, RUNNING, STOPPING = 1, 2, 4
OUT_OF_CAPACITY, INVALID, MARKET = 1, 4, 1  # Two classes of refusals, and a scope.
STOPPING_SECONDS, PAGE = 1, 10


class Refused(Exception):
    """Rule 2: nothing was made, and nothing will be. Its class, and why."""


class Cloud:
    """What became of each key, for ever, in one file. What a machine is now follows from the time."""

    def __init__(self, file, stock, boot_seconds):
        self.file, self.stock, self.boot_seconds = file, stock, boot_seconds
        self.lock = threading.Lock()  # Rule 1: of calls with one key, one is the first.
        self.owner = open(f"{file}.lock", "w")  # Rule 1: and of processes there is one. The lock ends when it does.
        fcntl.flock(self.owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.read()

    def read(self):
        self.machines = json.loads(self.file.read_text()) if self.file.exists() else {}

    def write(self):
        """Rule 1: what is answered is on disk before, so that no crash forgets it."""
        try:
            with open(f"{self.file}.new", "w") as new:
                json.dump(self.machines, new, indent=1)
                new.flush()
                os.fsync(new.fileno())
            os.replace(new.name, self.file)
            folder = os.open(self.file.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError:
            self.read()  # What is on disk is what there is.
            raise

    def state(self, machine):
        """None once it is gone, and where none was made."""
        now = time.time()
        if "refused" in machine:
            return None
        if "ended" in machine:
            return STOPPING if now < machine["ended"] + STOPPING_SECONDS else None
        return PENDING if now < machine["launched"] + self.boot_seconds else RUNNING

    def there(self):
        return [machine for machine in self.machines.values() if self.state(machine)]

    def launch(self, cluster, key, place, boot):
        if machine := self.machines.get(key):  # Rule 1: asked again.
            if "refused" in machine:
                raise Refused(*machine["refused"])
            if machine["cluster"] != cluster or not self.state(machine):
                raise Refused(INVALID, "the machine of this key has ended, or is another cluster's")
            return machine
        if not cluster or not 0 < len(key.encode()) <= 512:
            raise Refused(INVALID, "a machine needs a cluster, and a key of at most 512 bytes")
        if refused := self.refuses(place):  # Rule 2: nor will anything be made of this key when there is stock again.
            self.machines[key] = {"refused": refused}
        else:  # Rule 5: its Node will get this id as its spec.providerID.
            name = hashlib.sha256(key.encode()).hexdigest()[:16]
            self.machines[key] = {"key": key, "cluster": cluster, "id": f"{place[0]}://{place[1]}/{name}", "name": name,
                                  "place": place, "launched": time.time()}
            self.boot(self.machines[key], boot)
        self.write()
        if refused:
            raise Refused(*refused)
        return self.machines[key]

    def boot(self, machine, boot):
        """What the machine boots with: your cloud's user data. It has a token in it, so only its owner may read it."""
        if boot:
            fill = {b"@STOKER_PROVIDER_ID@": machine["id"], b"@STOKER_NODE_NAME@": machine["name"]}
            for marker, value in fill.items():
                boot = boot.replace(marker, value.encode())
            path = Path(f"{self.file}.{machine['name']}.boot")
            path.touch(0o600)
            path.write_bytes(boot)

    def refuses(self, place):
        if place not in self.stock:
            return INVALID, f"{place[3]} is not sold like that in {'/'.join(place[:3])}"
        if sum(tuple(machine["place"]) == place for machine in self.there()) >= self.stock[place]:
            return OUT_OF_CAPACITY, f"{place[3]} is sold out in {'/'.join(place[:3])}"
        return None

    def end(self, cluster, ids):
        for machine in self.there():
            if machine["cluster"] == cluster and machine["id"] in ids:  # Rule 6.
                machine.setdefault("ended", time.time())
        self.write()


class Supplier:
    """The service of supplier.proto."""

    def __init__(self, messages, cloud, name, account):
        self.pb, self.cloud, self.name, self.account = messages, cloud, name, account

    def Describe(self, request, context):  # Rules 9 and 10.
        if request.protocol < 1:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this plugin speaks protocol 1")
        scope = self.pb.Scope(name=self.name, cloud=self.name, regions={place[1] for place in self.cloud.stock})
        return self.pb.DescribeResponse(
            name="plugin.py", protocol=1, account=self.account, scopes=[scope], max_in_flight=4, max_batch=10)

    def Launch(self, request, context):
        place = (request.cloud, request.region, request.zone_id, request.instance_type, request.capacity_type,
                 *filter(None, (request.reservation, request.node_class)))  # With these, it is not sold.
        outcomes = [self.outcome(request.cluster, machine, place) for machine in request.machines]  # Rule 3.
        return self.pb.LaunchResponse(outcomes=outcomes)

    def outcome(self, cluster, asked, place):
        key = asked.key
        try:
            with self.cloud.lock:
                machine = self.cloud.launch(cluster, key, place, asked.boot_data)
                return self.pb.Outcome(key=key, launched=self.instance(machine))
        except Refused as why:
            refused = self.pb.Refused(**{"class": why.args[0]}, scope=MARKET, message=why.args[1])
            return self.pb.Outcome(key=key, refused=refused)
        except OSError as why:  # Rule 2: it may have been made. So it may after a time-out of your cloud, or its 5xx.
            return self.pb.Outcome(key=key, unclear=self.pb.Unclear(message=str(why)))

    def instance(self, machine):  # Rules 7 and 8: what is not known is left out, and nothing here is RECLAIMING.
        cloud, region, zone, kind, capacity = machine["place"]
        return self.pb.Instance(
            key=machine["key"], provider_id=machine["id"], node_name=machine["name"], cloud=cloud, region=region,
            zone_id=zone, instance_type=kind, capacity_type=capacity, launched_at=stamp(machine["launched"]),
            state=self.cloud.state(machine) or STOPPING)

    def List(self, request, context):
        if request.scope != self.name:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no scope {request.scope!r}")
        with self.cloud.lock:  # Rule 4: all that there is at one moment, however long the sending takes.
            as_of = time.time()
            found = [self.instance(machine) for machine in self.cloud.there() if machine["cluster"] == request.cluster]
        while len(found) > PAGE:
            yield self.pb.ListResponse(instances=found[:PAGE])
            found = found[PAGE:]
        yield self.pb.ListResponse(instances=found, last=True, complete=True, as_of=stamp(as_of))

    def Terminate(self, request, context):
        with self.cloud.lock:
            self.cloud.end(request.cluster, request.provider_ids)
            foreign = {machine["id"] for machine in self.cloud.there() if machine["cluster"] != request.cluster}
        errors = {one: "another cluster's" for one in foreign}
        return self.pb.TerminateResponse(
            ended=[self.pb.Ended(provider_id=one, error=errors.get(one)) for one in request.provider_ids])

    def Markets(self, request, context):
        return self.pb.MarketsResponse()  # Rule 8: no price of now is known, and zones have no other names.

    def Notices(self, request, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "there are none")


def stamp(seconds):
    at = Timestamp()
    at.FromMilliseconds(int(seconds * 1000))
    return at


def stubs(proto):
    """Messages and service of supplier.proto, generated anew at each start."""
    with tempfile.TemporaryDirectory() as out:
        google = Path(protoc.__file__).parent / "_proto"
        into = [f"--python_out={out}", f"--grpc_python_out={out}"]
        if protoc.main(["protoc", f"-I{proto.parent}", f"-I{google}", *into, str(proto)]):
            sys.exit(f"{proto} does not compile")
        sys.path.insert(0, out)
        made = [importlib.import_module(f"{proto.stem}_{part}") for part in ("pb2", "pb2_grpc")]
        sys.path.remove(out)
        return made


def main():
    flags = argparse.ArgumentParser(description="A supplier plugin for Stoker over a pretend cloud.")
    flags.add_argument("--listen", required=True, help="Unix socket, such as unix:///run/stoker/lambda.sock")
    flags.add_argument("--state", required=True, type=Path, help="file of the pretend cloud")
    flags.add_argument("--proto", default=PROTO, type=Path, help="supplier.proto; that of this repository if left out")
    flags.add_argument("--cloud", default="lambda", help="its name in the price tables: lambda if left out")
    flags.add_argument("--market", action="append", help="REGION/ZONE/TYPE/CAPACITY=STOCK, again for each")
    flags.add_argument("--account", default="pretend", help="account that it acts in")
    flags.add_argument("--boot", default=3, type=float, help="seconds for which a machine is PENDING: 3 if left out")
    flags.add_argument("--break", dest="rule", help="break a rule, for `stoker supplier check` to find: see broken.py")
    args = flags.parse_args()
    if not args.listen.startswith("unix:"):
        flags.error("--listen takes a Unix socket: whoever reaches a plugin may launch machines")
    os.umask(0o007)  # Its user and group may.
    stock = {}
    for text in args.market or LAMBDA:
        *place, kind, capacity, count = text.replace("=", "/").split("/")
        stock[(args.cloud, *place, kind, CAPACITY_TYPES[capacity])] = int(count)
    try:
        cloud = Cloud(args.state, stock, args.boot)
    except BlockingIOError:
        sys.exit(f"another plugin has {args.state}")
    messages, service = stubs(args.proto)
    plugin = Supplier(messages, cloud, args.cloud, args.account)
    if args.rule:
        sys.dont_write_bytecode = True
        from broken import Broken
        plugin = Broken(args.rule, plugin)

    server = grpc.server(futures.ThreadPoolExecutor(16))
    service.add_SupplierServicer_to_server(plugin, server)
    server.add_insecure_port(args.listen)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server.start()
    print(f"{args.listen}: {args.cloud}, {len(stock)} markets, {len(cloud.there())} machines", flush=True)
    signal.sigwait(ends)
    server.stop(grace=2).wait()


if __name__ == "__main__":
    main()
