#!/usr/bin/env bash
# Shows that the control plane of control-plane.sh works on this machine: it starts, answers by RBAC, the scheduler binds
# GPU pods and packs them on one node, and nothing is left running. Exit status 0 if so.
set -euo pipefail
# shellcheck source=control-plane.sh
source "$(dirname "${BASH_SOURCE[0]}")/control-plane.sh"

dir=$(mktemp -d)
trap 'control_plane_stop "$dir"; rm -rf "$dir"' EXIT

fail() {
  echo "selftest.sh: $*" >&2
  tail -n 20 "$dir/kube-scheduler.log" >&2 || true
  exit 1
}

# LABEL COMMAND...
timed() {
  local start=${EPOCHREALTIME/./} label=$1
  shift
  "$@" || fail "$label: failed"
  printf '%-32s %6d ms\n' "$label" $(((${EPOCHREALTIME/./} - start) / 1000))
}

# NAME GPUS
add_node() {
  kube_post /api/v1/nodes >/dev/null <<END || return 1
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$1"}, "spec": {"providerID": "fixed:///$1"}}
END
  local room='{"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "'$2'"}'
  kube_patch "/api/v1/nodes/$1/status" merge >/dev/null <<END
{"status": {"capacity": $room, "allocatable": $room, "conditions": [{"type": "Ready", "status": "True"}]}}
END
}

add_nodes() { add_node gpu-a 8 && add_node gpu-b 8; }

# NAME: a pod with one GPU, and the wait until a node has it
bound_to() {
  local end=$((SECONDS + 30)) node=
  kube_post /api/v1/namespaces/default/pods >/dev/null <<END || return 1
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1"}, "spec": {"containers": [
  {"name": "work", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
END
  while [ -z "$node" ] && [ "$SECONDS" -lt "$end" ]; do
    node=$(kube_get "/api/v1/namespaces/default/pods/$1" | sed -n 's/.*"nodeName": *"\([^"]*\)".*/\1/p')
    sleep 0.02
  done
  [ -n "$node" ] && echo "$node" >"$dir/$1.node"
}

pod_deletes() { kube_delete '/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0' >/dev/null; }

limited_client_is_limited() {
  kube_post /api/v1/namespaces/default/serviceaccounts >/dev/null <<<'{"metadata": {"name": "limited"}}' || return 1
  local token answer
  token=$(kube_service_account_kubeconfig default limited | sed -n 's/.*token: \([^}]*\)}/\1/p')
  local client=(curl --noproxy '*' --silent --cacert "$dir/apiserver.crt" --header "Authorization: Bearer $token")
  answer=$("${client[@]}" "$(cat "$dir/server")/api/v1/nodes")
  # Its name in the refusal shows that it was known, and not taken for anonymous.
  grep -q '"system:serviceaccount:default:limited\\" cannot list resource' <<<"$answer"
}

timed 'etcd, API server, scheduler up' control_plane_start "$dir"
pids=$(cat "$dir"/*.pid)
timed 'service account is held by RBAC' limited_client_is_limited
timed 'two GPU nodes posted' add_nodes
timed 'first GPU pod bound' bound_to first
for pod in second third; do
  timed "$pod GPU pod bound" bound_to "$pod"
  cmp -s "$dir/first.node" "$dir/$pod.node" || fail "$pod pod is not packed on the node of the first"
done
timed 'pod deleted' pod_deletes
timed 'all stopped' control_plane_stop "$dir"
for pid in $pids; do
  # A process that ended but is not yet collected by this shell has no program any more.
  [ ! -e "/proc/$pid/exe" ] || fail "process $pid still runs"
done
