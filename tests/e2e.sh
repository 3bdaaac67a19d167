#!/usr/bin/env bash
# End to end: stoker between a Cluster Autoscaler and a real etcd, kube-apiserver and kube-scheduler, on loopback.
# Needs Rust, Go (the first build of the peers takes minutes), curl and openssl. The last line is `N passed, N failed`.
#
#   tests/e2e.sh                  everything, with our model of the autoscaler
#   tests/e2e.sh SCENARIO...      only these scenarios
#   tests/e2e.sh chart            only the Helm chart: installed, upgraded, tested and uninstalled
#   tests/e2e.sh --memory         instead: stoker's memory while it watches 5,000 Nodes and 20,000 Pods
#
#   STOKER_E2E_CLUSTER_AUTOSCALER  cluster-autoscaler binaries to use instead of the model, colon separated
#   STOKER_E2E_TRANSCRIPTS         a directory: what the autoscaler called, in order, is written there, as RELEASE/SCENARIO.txt
#   STOKER_E2E_KEEP                if set, logs are kept also when all went well
#   STOKER_E2E_LANES               how many scenarios are played side by side, each on a control plane of its own (1)
#   STOKER_E2E_KARPENTER_KILLS     how often Karpenter is killed while nodes come through it (10)
#   STOKER_E2E_FAILOVERS           how often a leader, or one replica alone, is killed, paused or cut off (5, and 3)
#   STOKER_E2E_MINUTES             how long a scenario may take (4)
#   STOKER_E2E_BIN                 where stoker and the tests' programs are, built already; otherwise they are built
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$tests")
manifests=$root/manifests
# shellcheck source=peers/control-plane.sh
source "$tests/peers/control-plane.sh"
# shellcheck source=peers/postgres.sh
source "$tests/peers/postgres.sh"
# shellcheck source=e2e/manifests.sh
source "$tests/e2e/manifests.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/stoker-e2e.XXXXXX")
playing='' players=()

finish() {
  local status=$?
  # Ends what it started before it goes itself.
  for player in $playing "${players[@]}"; do
    kill "$player" 2>/dev/null && wait "$player" 2>/dev/null || true
  done
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

# Started in the background, so that a signal to this shell is heeded at once.
wait_for() {
  local status=0
  playing=$!
  wait "$playing" || status=$?
  playing=
  return "$status"
}

# The build of the tests serves here too: its failpoints and switches do nothing where no variable sets them. Builds nothing where
# STOKER_E2E_BIN says where it is.
build() {
  bin=${STOKER_E2E_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug}
  [ -n "${STOKER_E2E_BIN:-}" ] || kube_peer_test=$("$tests/build.sh" | awk '$1 == "test" && $2 == "kube_peer" { print $3 }')
}

# The Kubernetes side of the service by itself, with each of its parts against this API server.
kube_peer() {
  (cd "$root/provider" && STOKER_E2E_KUBECONFIG=$admin "$kube_peer_test" --quiet)
}

# LANE LANES ARGUMENT...: a control plane, and scenarios on it: all, or where there are more lanes, those that no other lane has claimed.
# What all lanes would do alike the first alone does.
lane() {
  local lane=$1 lanes=$2 ports=$((12000 / $2)) file argument
  shift 2
  # Not local: the trap needs them when this function is over.
  control_plane=$dir/control-plane-$lane passed=0 failed=0 playing=''
  trap '[ -z "$playing" ] || { kill "$playing" 2>/dev/null && wait "$playing" || true; }; control_plane_stop "$control_plane"' EXIT
  trap 'exit 130' INT TERM
  # Lanes start at one time, and may not find the same free ports.
  CONTROL_PLANE_PORTS=$((20000 + lane * ports))-$((20000 + (lane + 1) * ports - 1))
  [ $# -gt 0 ] || CONTROL_PLANE_AUDIT=1
  control_plane_start "$control_plane" "$manifests/scheduler/bin-packing.yaml"
  local admin=$control_plane/kubeconfig own=$dir/lane-$lane
  mkdir -p "$own"
  for namespace in stoker probe; do apply_for_real "$manifests/$namespace/namespace.yaml"; done
  apply_for_real "$karpenter/crds.yaml"
  [ "$lane" -gt 0 ] || check dry-run dry_run_all "$manifests"
  for file in stoker/admission.yaml {stoker,simulated,isolation,probe,buffers,replicas,cluster-autoscaler}/rbac.yaml; do
    apply_for_real "$manifests/$file"
  done
  apply_for_real "$tests/e2e/capacitybuffers.yaml"
  for file in "$manifests"/{karpenter,boot}/{rbac,admission}.yaml "$manifests/karpenter/steering.yaml" "$tests/e2e/karpenter.yaml"; do
    apply_for_real "$file"
  done
  (umask 077
    kube_service_account_kubeconfig stoker stoker >"$own/stoker.kubeconfig"
    kube_service_account_kubeconfig kube-system cluster-autoscaler-stoker >"$own/autoscaler.kubeconfig")
  if [ $# -eq 0 ] && [ "$lane" -eq 0 ] && [ -n "${kube_peer_test:-}" ]; then
    check kube-peer kube_peer
  fi
  local arguments=(--kubeconfig "$admin" --stoker-kubeconfig "$own/stoker.kubeconfig"
    --autoscaler-kubeconfig "$own/autoscaler.kubeconfig" --dir "$own" --manifests "$manifests"
    --karpenter "$karpenter/kwok" --stoker "$bin/stoker" --probe "$bin/shipped-probe" --model "$bin/stoker-autoscaler-model"
    --passed "$passed" --failed "$failed")
  [ "$lanes" -eq 1 ] || arguments+=(--shared "$dir/shared")
  for argument in "$@"; do
    case $argument in
      --memory) arguments+=(--memory) ;;
      *) arguments+=(--only "$argument") ;;
    esac
  done
  [ -z "${STOKER_E2E_TRANSCRIPTS:-}" ] || arguments+=(--transcripts "$STOKER_E2E_TRANSCRIPTS")
  IFS=: read -ra binaries <<<"${STOKER_E2E_CLUSTER_AUTOSCALER:-}"
  for binary in "${binaries[@]}"; do
    [ -z "$binary" ] || arguments+=(--autoscaler "$binary")
  done
  "$bin/stoker-e2e" "${arguments[@]}" &
  wait_for
}

# The chart on a control plane of its own, where nothing but the kinds of Karpenter is installed, and a PostgreSQL. Its lines are as those of a lane.
chart() {
  control_plane=$dir/control-plane-chart playing=''
  trap '[ -z "$playing" ] || { kill "$playing" 2>/dev/null && wait "$playing" || true; }; control_plane_stop "$control_plane"
    postgres_stop "$dir/chart-postgres"' EXIT
  trap 'exit 130' INT TERM
  # Above those of the lanes.
  CONTROL_PLANE_PORTS=32000-32767 CONTROL_PLANE_AUDIT=1
  control_plane_start "$control_plane" "$manifests/scheduler/bin-packing.yaml"
  apply_for_real "$karpenter/crds.yaml"
  chmod o+x "$dir"
  postgres_start "$dir/chart-postgres"
  python3 "$tests/e2e/chart.py" "$control_plane" "$dir/chart" "$helm/helm" "$bin/stoker" "$bin/stoker-autoscaler-model" \
    "$(cat "$dir/chart-postgres/url")" &
  wait_for
}

for argument in "$@"; do
  case $argument in
    --memory) ;;
    -*) echo "e2e.sh: unknown option $argument; see the top of $0" >&2 && exit 2 ;;
  esac
done
build
helm=$("$tests/peers/build.sh" helm)
karpenter=$("$tests/peers/build.sh" karpenter)
if [ "$*" = chart ]; then
  (chart) &
  wait_for
  exit
fi
lanes=${STOKER_E2E_LANES:-1}
mkdir "$dir/shared"
[ $# -eq 0 ] || lanes=1
if [ $# -gt 0 ]; then
  (lane 0 1 "$@") &
  wait_for
  exit
fi
# The peers are built once.
"$tests/peers/build.sh" >/dev/null
for ((n = 0; n < lanes; n++)); do
  # Each counts in its last line, which is kept for the sum.
  (lane "$n" "$lanes") > >(tee "$dir/out-$n" | grep --line-buffered -v ' passed, .* failed$') &
  players+=($!)
done
(chart) > >(tee "$dir/out-chart" | grep --line-buffered -v ' passed, .* failed$') &
players+=($!)
status=0
for player in "${players[@]}"; do wait "$player" || status=$?; done
players=()
sleep 1 # until the last lines are written
# By the logs of what was asked of the API servers. A release of the autoscaler that skips scenarios skips rights.
if [ -z "${STOKER_E2E_CLUSTER_AUTOSCALER:-}" ]; then
  passed=0 failed=0
  check rights-are-used python3 "$tests/e2e/used_rights.py" "$root/provider/docs/reference/rbac.md" "$dir"/control-plane-[0-9]*/audit.log
  echo "$passed passed, $failed failed" >"$dir/out-rights"
  [ "$failed" -eq 0 ] || status=1
fi
awk '/ passed, .* failed$/ { passed += $1; failed += $3 } END { print passed " passed, " failed " failed" }' "$dir"/out-*
exit "$status"
