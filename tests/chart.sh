#!/usr/bin/env bash
# The Helm chart (manifests/chart) by itself: lint, unit tests, values that are refused, the plain manifests, which are its rendering,
# its README, and its autoscaler under `stoker doctor`. Builds Helm from tests/peers/helm. Closes with `N passed, N failed`.
#
#   tests/chart.sh           checks
#   tests/chart.sh --write   writes the plain manifests and the README from the chart
#
# tests/e2e.sh installs it on a real API server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(tests/peers/build.sh helm)
chart=manifests/chart
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Nothing of the user's own Helm.
export HELM_CONFIG_HOME=$dir/config HELM_CACHE_HOME=$dir/cache HELM_DATA_HOME=$dir/data

helm() { "$tools/helm" "$@" 2> >(grep -v 'found symbolic link' >&2); }

# Plain manifest, the template that it is the rendering of, and the values where they are not those of ci/plain.yaml.
plain='
stoker/rbac rbac
replicas/rbac rbac-replicas aws
stoker/admission admission
stoker/deployment deployment
stoker/networkpolicy networkpolicy
stoker/policy configmap-policy
simulated/rbac rbac-simulated
karpenter/rbac rbac-karpenter
karpenter/admission admission-karpenter
karpenter/steering steering
isolation/rbac rbac-isolation
buffers/rbac rbac-buffers
boot/rbac rbac-boot
boot/admission admission-boot
probe/namespace probe-namespace
probe/rbac rbac-probe
probe/daemonset probe-daemonset
probe/networkpolicy probe-networkpolicy
cluster-autoscaler/rbac autoscaler-rbac
cluster-autoscaler/deployment autoscaler-deployment
cluster-autoscaler/cloud-config autoscaler-cloud-config
monitoring/monitors monitors
monitoring/rules rules
'

# Writes each plain manifest into the folder $dir/plain.
render_plain() {
  local file template values
  for values in plain aws; do
    helm template stoker "$chart" --namespace stoker --values "$chart/ci/$values.yaml" --output-dir "$dir/rendered/$values" >/dev/null
  done
  while read -r file template values; do
    [ -n "$file" ] || continue
    mkdir -p "$dir/plain/${file%/*}"
    # Helm orders documents by kind: here those of one name stand together, in the order of the template. What Helm puts between them goes.
    # `stoker alerts` writes its file itself.
    awk -v head="$([ "$file" = monitoring/rules ] || echo "# Rendered by tests/chart.sh --write: change $chart/templates/$template.yaml.")" '
      NR == FNR { if (/^  name: / && !($2 in place)) place[$2] = ++places; next }
      /^# Source: / { next }
      /^---$/ { n++; blank = ""; next }
      /^$/ { blank = blank "\n"; next }
      /^  name: / && !(n in name) { name[n] = $2 }
      { text[n] = text[n] (text[n] == "" ? "" : blank) $0 "\n"; blank = "" }
      END {
        for (at = 0; at <= places; at++) for (i = 1; i <= n; i++) {
          if (text[i] == "" || place[name[i]] + 0 != at) continue
          printf "%s%s", begun++ ? "---\n" : head == "" ? "" : head "\n", text[i]
        }
      }
    ' "$chart/templates/$template.yaml" "$dir/rendered/${values:-plain}/stoker/templates/$template.yaml" >"$dir/plain/$file.yaml"
  done <<<"$plain"
}

readme() { "$tools/helm-docs" --dry-run --chart-search-root "$chart" --log-level error; }

if [ "${1:-}" = --write ]; then
  render_plain
  cp -r "$dir/plain/." manifests/
  readme >"$chart/README.md"
  exit
fi

stoker=${STOKER_E2E_BIN:-${CARGO_TARGET_DIR:-target}/debug}/stoker
[ -x "$stoker" ] || { echo "chart.sh: no $stoker: build it first (tests/build.sh)" >&2; exit 1; }

passed=0 failed=0
# NAME COMMAND...
check() {
  local name=$1
  shift
  if "$@" >"$dir/said" 2>&1; then
    passed=$((passed + 1)) && printf 'ok     %s\n' "$name"
  else
    failed=$((failed + 1)) && printf 'FAILED %s\n' "$name"
    tail -n 40 "$dir/said" | sed 's/^/       /'
  fi
}

# WORDS ARGUMENT...: the chart is not rendered with these arguments, and the reason has these words.
refused() {
  local words=$1
  shift
  if "$tools/helm" template stoker "$chart" --namespace stoker "$@" >/dev/null 2>"$dir/why"; then
    echo "rendered, and should have been refused: $*"
    return 1
  fi
  grep -qF -- "$words" "$dir/why" || { echo "refused without the words \"$words\": $*" && cat "$dir/why" && return 1; }
}

lint() {
  local values
  for values in "$chart"/ci/*.yaml; do
    helm lint --strict --quiet "$chart" --values "$values" || return 1
  done
}

same_as_plain() {
  local file _
  render_plain
  while read -r file _; do
    [ -z "$file" ] || diff -u "manifests/$file.yaml" "$dir/plain/$file.yaml" || { echo "write them: tests/chart.sh --write" && return 1; }
  done <<<"$plain"
}

# A description that helm-docs does not understand is left out.
same_readme() {
  ! grep -n '|  |$' "$chart/README.md" || { echo "values.yaml: no description" && return 1; }
  readme | diff -u "$chart/README.md" - || { echo "write it: tests/chart.sh --write" && return 1; }
}

# A package holds the files that the chart links to, and renders the same.
packaged() {
  helm package "$chart" --destination "$dir" >/dev/null || return 1
  helm template stoker "$dir"/stoker-*.tgz --namespace stoker --values "$chart/ci/plain.yaml" >"$dir/packaged" || return 1
  helm template stoker "$chart" --namespace stoker --values "$chart/ci/plain.yaml" | diff - "$dir/packaged"
}

doctor() {
  local values
  for values in plain rehearsal; do
    helm template stoker "$chart" --namespace stoker --values "$chart/ci/$values.yaml" \
      --show-only templates/autoscaler-deployment.yaml >"$dir/autoscaler.yaml" || return 1
    "$stoker" doctor --autoscaler-manifest "$dir/autoscaler.yaml" || return 1
  done
}

# Each policy, with the flags and files that the chart gives Stoker, starts a Stoker without faults in it.
policies() {
  local values
  for values in "$chart"/ci/*.yaml; do
    helm template stoker "$chart" --namespace stoker --values "$values" --show-only templates/configmap-policy.yaml >"$dir/policy.yaml" || return 1
    "$stoker" policy check "$dir/policy.yaml" || return 1
  done
}

refusals() {
  local simulated=(--set supplier.kind=simulated) policy=$dir/refused.yaml
  refused "/supplier/kind" || return 1
  refused "value must be one of 'simulated', 'karpenter', 'aws', 'plugin'" --set supplier.kind=gcp || return 1
  refused "additional properties 'replicaCount' not allowed" "${simulated[@]}" --set replicaCount=1 || return 1
  refused "additional properties 'retain' not allowed" "${simulated[@]}" --set state.retain=30d || return 1
  refused "/state/postgres/secret': value must be 'the name of a Secret whose key url is" "${simulated[@]}" --set replicas=2 || return 1
  refused "maximum: got 3, want 2" "${simulated[@]}" --set replicas=3,state.postgres.secret=db || return 1
  refused "set state.postgres.secret to a Secret" "${simulated[@]}" --set replicas=2 --skip-schema-validation || return 1
  refused "policy.inline and policy.existingConfigMap are both set" "${simulated[@]}" --set policy.inline=a,policy.existingConfigMap=b ||
    return 1
  refused "supplier.kind is karpenter, and there is no policy: set it with --set-file" --set supplier.kind=karpenter || return 1
  printf 'suppliers: [{ name: aws, kind: aws, config: /etc/stoker/aws/aws.yaml }]\n' >"$policy"
  refused "the suppliers of policy.inline are of kind aws" --set supplier.kind=karpenter --set-file policy.inline="$policy" || return 1
  refused "supplier.aws.config is empty: set it with --set-file" --set supplier.kind=aws --set-file policy.inline="$policy" || return 1
  printf 'suppliers: [{ name: k, kind: karpenter }, { name: s, kind: simulated }]\n' >"$policy"
  refused "remove it from the policy, or set supplier.kind to simulated" --set supplier.kind=karpenter --set-file policy.inline="$policy" ||
    return 1
  printf 'pools: [\n' >"$policy"
  refused "policy.inline is not YAML" "${simulated[@]}" --set-file policy.inline="$policy" || return 1
  refused "missing property 'image'" "${simulated[@]}" --set supplier.plugin.sidecar.name=x || return 1
  refused "name an issuer that is a CA" "${simulated[@]}" --set tls.mode=certManager || return 1
  refused "set it to ClusterIssuer" "${simulated[@]}" --set tls.mode=certManager,tls.certManager.kind=Issuer \
    --set tls.certManager.issuer=ca,clusterAutoscaler.enabled=true || return 1
  refused "value must be one of 'selfSigned', 'certManager', 'existingSecret'" "${simulated[@]}" --set tls.mode=none || return 1
  refused "missing property 'tls'" "${simulated[@]}" --set tls=null || return 1
  refused "missing property 'postgres'" "${simulated[@]}" --set state.postgres=null || return 1
  refused "missing property 'repository'" "${simulated[@]}" --set image.repository=null || return 1
  refused "the chart makes no volume" "${simulated[@]}" --set state.storageClass=fast,state.existingClaim=mine || return 1
  refused "there is one journal" "${simulated[@]}" --set state.postgres.secret=a,state.existingClaim=b || return 1
  refused "extraArgs names --debug: set debug instead" "${simulated[@]}" --set 'extraArgs={--debug}' || return 1
  refused "extraArgs names --policy, which the chart sets: remove it" "${simulated[@]}" --set 'extraArgs={--policy=x}' || return 1
}

# Each key of values.yaml is one of the schema, and the other way round; both are sorted paths of leaves.
same_keys() {
  # In values.yaml a key with a comment `# --` above it is a leaf.
  awk '
    /^ *# --/ { leaf = 1; next }
    /^ *[A-Za-z]+:/ {
      depth = match($0, /[^ ]/) - 1
      key = substr($0, depth + 1); sub(/:.*/, "", key)
      path[depth / 2] = key
      if (leaf) { line = path[0]; for (i = 1; i <= depth / 2; i++) line = line "." path[i]; print line }
      leaf = 0
    }
  ' "$chart/values.yaml" | sort >"$dir/keys"
  python3 - "$chart/values.schema.json" "$dir/keys" <<'END'
import json, sys
schema, keys = json.load(open(sys.argv[1])), open(sys.argv[2]).read().split()
def paths(node, path):
    open_ended = node.get("additionalProperties", True) is not False
    for name, one in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if here in keys:
            yield here
        else:
            assert one.get("type") != "object" or not open_ended, here
            yield from paths(one, here) if "properties" in one else [here]
there = set(paths(schema, "")) - {"global"}
assert there == set(keys), f"only in one of values.yaml and values.schema.json: {there ^ set(keys)}"
END
}

check "lint with each example" lint
check "values and schema have the same keys" same_keys
check "unit tests" "$tools/helm-unittest" --strict "$chart"
check "values that contradict are refused, with the cure" refusals
check "the plain manifests are its rendering" same_as_plain
check "its README is as helm-docs writes it" same_readme
check "a package has all of it" packaged
check "its autoscaler passes stoker doctor" doctor
check "its policies have no faults" policies
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
