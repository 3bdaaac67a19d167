#!/usr/bin/env bash
# Holds the plugin in Python (manifests/examples/plugin) against the rules of the plugin protocol: as it is, it keeps all; with each rule
# broken, the check finds that rule. Needs Python with pip. Closes with `N passed, N failed`.
#
#   tests/plugin.sh            everything
#   tests/plugin.sh RULE ...   only with these rules broken
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stoker=${STOKER_E2E_BIN:-${CARGO_TARGET_DIR:-target}/debug}/stoker
[ -x "$stoker" ] || { echo "plugin.sh: no $stoker: build it first (tests/build.sh)" >&2; exit 1; }

dir=$(mktemp -d)
plugin=''
finish() {
  [ -z "$plugin" ] || kill "$plugin" 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

python3 -m pip install --quiet --root-user-action=ignore --target "$dir/python" grpcio==1.76.0 grpcio-tools==1.76.0
export PYTHONPATH=$dir/python PYTHONDONTWRITEBYTECODE=1

# NAME [FLAG...]: starts a plugin and checks it; what the check says is in $dir/said.
check() {
  local name=$1 socket=$dir/$1.sock
  shift
  python3 manifests/examples/plugin/plugin.py --listen "unix://$socket" --state "$dir/$name.json" --boot 1 "$@" >"$dir/$name.log" 2>&1 &
  plugin=$!
  for _ in $(seq 200); do
    [ -S "$socket" ] && break
    sleep 0.1
  done
  local status=0
  "$stoker" supplier check --endpoint "unix://$socket" --gone-within 20 >"$dir/said" 2>&1 || status=$?
  kill "$plugin" 2>/dev/null && wait "$plugin" 2>/dev/null || true
  plugin=''
  return "$status"
}

passed=0 failed=0
# NAME WHETHER
say() {
  if "$2"; then
    passed=$((passed + 1)) && printf 'ok     %s\n' "$1"
  else
    failed=$((failed + 1)) && printf 'FAILED %s\n' "$1"
    sed 's/^/       /' "$dir/said"
  fi
}

rules=("$@")
[ $# -gt 0 ] || rules=(versions account answers-all same-key unclear lists-all same-id ends-what-is-named notice unknown)
if [ $# -eq 0 ]; then
  if check sound; then say "the plugin keeps every rule" true; else say "the plugin keeps every rule" false; fi
fi
for rule in "${rules[@]}"; do
  if check "$rule" --break "$rule"; then found=false
  elif grep -q "^BROKEN  *$rule " "$dir/said"; then found=true
  else found=false; fi
  say "$rule, broken, is found" "$found"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
