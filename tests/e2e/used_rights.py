#!/usr/bin/env python3
"""Each right that the manifests give Stoker is used by it in the end-to-end tests.

    used_rights.py RIGHTS AUDIT_LOG...

RIGHTS is provider/docs/reference/rbac.md, which is held equal to the manifests; the logs are of the control planes on
which the scenarios were played (CONTROL_PLANE_AUDIT). A right that no scenario uses fails, unless UNUSED says why.
"""

import json
import sys

STOKER = "stoker/stoker"
# What the scenario `rights` asks in Stoker's name (NOT_STOKER).
OTHERS = "rights-scenario"
# (group, resource, verb): why no scenario can use it.
UNUSED = {
    ("karpenter.k8s.aws", "ec2nodeclasses", "get"): "Karpenter's provider here is KWOK, which has no such class",
    ("", "secrets", "delete"): "no machine here joins with a token of its own; kube/tokens.rs tests it",
}


def granted(page):
    """{(group, resource, verb)} of the rows that are about Stoker."""
    found = set()
    for line in open(page):
        if line.startswith("## Only with the chart"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) < 7 or not cells[1].startswith("Stoker") or cells[0] == "feature":
            continue
        if "cluster-autoscaler" in cells[6]:
            continue
        for resource in cells[3].split(", "):
            for verb in cells[4].split(", "):
                found.add(("" if cells[2] == "core" else cells[2], resource.split(" [")[0], verb))
    return found


def used(account, logs):
    """{(group, resource, verb)} that an account has called, by the API server's audit logs."""
    user, found = f"system:serviceaccount:{account.replace('/', ':')}", set()
    for log in logs:
        for line in open(log):
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != user or not about or event.get("userAgent") == OTHERS:
                continue
            resource = "/".join(filter(None, [about["resource"], about.get("subresource")]))
            found.add((about.get("apiGroup", ""), resource, event["verb"]))
            # An apply that makes an object needs the right to create it too.
            if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
                found.add((about.get("apiGroup", ""), resource, "create"))
    return found


def main():
    rights, calls = granted(sys.argv[1]), used(STOKER, sys.argv[2:])
    name = lambda one: f"{one[2]} {one[1]}" + (f".{one[0]}" if one[0] else "")
    unused, needless = rights - calls - set(UNUSED), set(UNUSED) & calls
    print(f"{len(rights & calls)} of {len(rights)} rights were used")
    for one in sorted(unused):
        print(f"granted, and no scenario uses it: {name(one)}")
    for one in sorted(needless):
        print(f"used, and UNUSED says that it is not: {name(one)}")
    return bool(rights) and not unused and not needless


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
