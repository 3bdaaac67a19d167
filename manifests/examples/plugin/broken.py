"""Ways to break the rules of supplier.proto, one each, so that `stoker supplier check` can be seen to find them.

Nothing here belongs into a plugin: plugin.py imports it for `--break RULE` alone.
"""
import itertools
import sys

RULES = ["same-key", "unclear", "answers-all", "lists-all", "same-id", "ends-what-is-named", "notice", "unknown",
         "versions", "account"]
PENDING, RUNNING, RECLAIMING = 1, 2, 3


class Broken:
    """A sound plugin whose answers are spoilt on their way out."""

    def __init__(self, rule, plugin):
        if rule not in RULES:
            sys.exit(f"--break takes one of {', '.join(RULES)}")
        self.rule, self.plugin, self.cloud = rule, plugin, plugin.cloud
        self.described, self.listed = itertools.count(1), set()
        self.Markets, self.Notices = plugin.Markets, plugin.Notices

    def Describe(self, request, context):
        answer = self.plugin.Describe(request, context)
        if self.rule == "versions":
            answer.protocol = 99
        if self.rule == "account":
            answer.account += f"-{next(self.described)}"
        return answer

    def Launch(self, request, context):
        before = set(self.cloud.machines)
        answer = self.plugin.Launch(request, context)
        if self.rule == "answers-all" and len(answer.outcomes) > 1:
            del answer.outcomes[-1]
        for outcome in answer.outcomes:
            if self.rule == "same-key" and outcome.HasField("launched") and outcome.key in before:
                outcome.launched.CopyFrom(self.second(outcome.key))
            if self.rule == "unclear" and outcome.HasField("launched"):
                outcome.refused.CopyFrom(self.plugin.pb.Refused(**{"class": 1}, scope=1, message="sold out, it says"))
        return answer

    def second(self, key):
        """One more machine of a key, however often it is asked."""
        with self.cloud.lock:
            first = self.cloud.machines[key]
            second = {**first, "id": first["id"] + "-b", "name": first["name"] + "-b"}
            second = self.cloud.machines.setdefault(key + " b", second)
            self.cloud.write()
            return self.plugin.instance(second)

    def List(self, request, context):
        pages = list(self.plugin.List(request, context))
        if self.rule == "lists-all" and pages[-1].instances:
            del pages[-1].instances[-1]
        for instance in (instance for page in pages for instance in page.instances):
            if self.rule == "same-id" and instance.provider_id not in self.listed:
                self.listed.add(instance.provider_id)
                instance.provider_id += "-new"
            if self.rule == "notice" and instance.state in (PENDING, RUNNING):
                instance.state = RECLAIMING
            if self.rule == "unknown":
                instance.ClearField("capacity_type")
        yield from pages

    def Terminate(self, request, context):
        answer = self.plugin.Terminate(request, context)
        if self.rule == "ends-what-is-named":
            with self.cloud.lock:
                others = [machine for machine in self.cloud.there()
                          if "ended" not in machine and machine["id"] not in request.provider_ids]
                others.sort(key=lambda machine: machine["cluster"] != request.cluster)
                for machine in others[:1]:
                    self.cloud.end(machine["cluster"], [machine["id"]])
        return answer
