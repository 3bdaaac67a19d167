#!/usr/bin/env bash
# End to end: stoker between a Cluster Autoscaler and a real etcd, kube-apiserver and kube-scheduler, on loopback.
# Needs Rust, Go (the first build of the peers takes minutes), curl and openssl. The last line is `N passed, N failed`.
#
#   tests/e2e.sh                  everything, with our model of the autoscaler
#   tests/e2e.sh SCENARIO...      only these scenarios
#   tests/e2e.sh --memory         instead: stoker's memory while it watches 5,000 Nodes and 20,000 Pods
#
#   STOKER_E2E_CLUSTER_AUTOSCALER  cluster-autoscaler binaries to use instead of the model, colon separated
#   STOKER_E2E_TRANSCRIPTS         a directory: what the autoscaler called, in order, is written there, as RELEASE/SCENARIO.txt
#   STOKER_E2E_KEEP                if set, logs are kept also when all went well
#   STOKER_E2E_BIN                 where stoker and the tests' programs are, built already; otherwise they are built
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$tests")
manifests=$root/manifests
# shellcheck source=peers/control-plane.sh
source "$tests/peers/control-plane.sh"
# shellcheck source=e2e/manifests.sh
source "$tests/e2e/manifests.sh"

passed=0 failed=0
dir=$(mktemp -d "${TMPDIR:-/tmp}/stoker-e2e.XXXXXX")
scenarios=

finish() {
  local status=$?
  # Ends what it started before it goes itself.
  if [ -n "$scenarios" ] && kill "$scenarios" 2>/dev/null; then
    wait "$scenarios" 2>/dev/null || true
  fi
  control_plane_stop "$dir/control-plane"
  if [ "$status" -eq 0 ] && [ -z "${STOKER_E2E_KEEP:-}" ]; then
    rm -rf "$dir"
  else
    echo "logs: $dir" >&2
  fi
}
trap finish EXIT
trap 'exit 130' INT TERM

# NAME COMMAND...: one line for what it tests
check() {
  local name=$1 start=$SECONDS log=$dir/$1.log
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    printf '%-6s %-25s %-21s %6d s\n' ok manifests "$name" $((SECONDS - start))
  else
    failed=$((failed + 1))
    printf '%-6s %-25s %-21s %6d s\n' FAILED manifests "$name" $((SECONDS - start))
    tail -n 20 "$log" | sed 's/^/       /'
  fi
}

build() {
  if [ -n "${STOKER_E2E_BIN:-}" ]; then
    bin=$STOKER_E2E_BIN
    return
  fi
  # One after the other: the tests want switches in the library that the service must not have.
  (cd "$root" && cargo build --quiet --package stoker && cargo build --quiet --package stoker-tests --bins)
  bin=${CARGO_TARGET_DIR:-$root/target}/debug
}

build
control_plane_start "$dir/control-plane" "$manifests/scheduler/bin-packing.yaml"
admin=$dir/control-plane/kubeconfig
for namespace in stoker probe; do apply_for_real "$manifests/$namespace/namespace.yaml"; done
check dry-run dry_run_all "$manifests"
for file in stoker/rbac.yaml stoker/rbac-isolation.yaml stoker/rbac-simulated.yaml cluster-autoscaler/rbac.yaml buffers/rbac.yaml; do
  apply_for_real "$manifests/$file"
done
apply_for_real "$tests/e2e/capacitybuffers.yaml"
(umask 077
  kube_service_account_kubeconfig stoker stoker >"$dir/stoker.kubeconfig"
  kube_service_account_kubeconfig kube-system cluster-autoscaler-stoker >"$dir/autoscaler.kubeconfig")

# The Kubernetes side of the service by itself, with each of its parts against this API server.
kube_peer() {
  (cd "$root" && STOKER_E2E_KUBECONFIG=$admin cargo test --quiet --package stoker --test kube_peer)
}
if [ $# -eq 0 ] && [ -z "${STOKER_E2E_BIN:-}" ]; then
  check kube-peer kube_peer
fi

arguments=(--kubeconfig "$admin" --stoker-kubeconfig "$dir/stoker.kubeconfig"
  --autoscaler-kubeconfig "$dir/autoscaler.kubeconfig" --dir "$dir" --manifests "$manifests"
  --stoker "$bin/stoker" --probe "$bin/shipped-probe" --model "$bin/stoker-autoscaler-model")
for argument in "$@"; do
  case $argument in
    --memory) arguments+=(--memory) ;;
    -*) echo "e2e.sh: unknown option $argument; see the top of $0" >&2 && exit 2 ;;
    *) arguments+=(--only "$argument") ;;
  esac
done
[ -z "${STOKER_E2E_TRANSCRIPTS:-}" ] || arguments+=(--transcripts "$STOKER_E2E_TRANSCRIPTS")
IFS=: read -ra binaries <<<"${STOKER_E2E_CLUSTER_AUTOSCALER:-}"
for binary in "${binaries[@]}"; do
  [ -z "$binary" ] || arguments+=(--autoscaler "$binary")
done

# In the background, so that a signal to this shell is heeded at once.
"$bin/stoker-e2e" "${arguments[@]}" --passed "$passed" --failed "$failed" &
scenarios=$!
status=0
wait "$scenarios" || status=$?
scenarios=
exit "$status"
