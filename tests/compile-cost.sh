#!/usr/bin/env bash
# What it costs to compile the service: `stoker` built from nothing, in release, at HEAD and at each other REF of git that is given, each in
# a checkout and a target directory of its own, which are removed. What is not committed is not built. Minutes for each.
#
#   tests/compile-cost.sh                              HEAD
#   tests/compile-cost.sh main v0.1.0                  HEAD and these, to compare
#   tests/compile-cost.sh --profile dev -p stoker-core [REF...]   another profile, another package
#
# WALL and CPU are seconds of cargo and all that it starts; PEAK is the most memory of one process, which is a rustc or a linker.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
profile=release what=(-p stoker --bin stoker)
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=${2:?compile-cost.sh: --profile NAME} && shift 2 ;;
    -p) what=(-p "${2:?compile-cost.sh: -p PACKAGE}") && shift 2 ;;
    -*) echo "compile-cost.sh: unknown option $1; see the top of $0" >&2 && exit 2 ;;
    *) break ;;
  esac
done
commits=()
for ref in HEAD "$@"; do
  commits+=("$(git -C "$root" rev-parse --short=9 --verify --quiet "$ref^{commit}")") ||
    { echo "compile-cost.sh: $ref is no commit" >&2 && exit 2; }
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/stoker-compile-cost.XXXXXX")
finish() {
  git -C "$root" worktree remove --force "$dir/checkout" 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Runs a command, whose errors go to the file LOG, and prints its wall and CPU seconds, and the most memory of one process in MiB.
# shellcheck disable=SC2016
measure='
import os, subprocess, sys, time
begun = time.monotonic()
with open(sys.argv[1], "wb") as log:
    child = subprocess.Popen(sys.argv[2:], stdout=log, stderr=log)
_, status, used = os.wait4(child.pid, 0)
cpu = used.ru_utime + used.ru_stime
print(f"{time.monotonic() - begun:.0f} {cpu:.0f} {used.ru_maxrss / 1024:.0f}")
sys.exit(os.waitstatus_to_exitcode(status) != 0)
'

# Settings of the caller would be measured too.
unset RUSTFLAGS RUSTC_WRAPPER "${!CARGO_PROFILE_@}" CARGO_INCREMENTAL CARGO_BUILD_TARGET_DIR
export CARGO_TARGET_DIR=$dir/target
echo "cargo build --profile $profile ${what[*]}, from nothing, on $(nproc) cores"
printf '%-20s %-10s %7s %7s %9s %7s\n' REF COMMIT WALL CPU PEAK CRATES
for ref in HEAD "$@"; do
  commit=${commits[0]} commits=("${commits[@]:1}")
  git -C "$root" worktree add --quiet --force --detach "$dir/checkout" "$commit"
  # Downloads are no compile cost.
  (cd "$dir/checkout" && cargo fetch --locked --quiet)
  if ! used=$(cd "$dir/checkout" && python3 -c "$measure" "$dir/log" cargo build --locked --profile "$profile" "${what[@]}"); then
    echo "compile-cost.sh: $ref cannot be built:" >&2
    tail -n 20 "$dir/log" >&2
    exit 1
  fi
  read -r wall cpu peak <<<"$used"
  printf '%-20s %-10s %5s s %5s s %5s MiB %7s\n' "$ref" "$commit" "$wall" "$cpu" "$peak" "$(grep -c '^ *Compiling ' "$dir/log")"
  git -C "$root" worktree remove --force "$dir/checkout"
  rm -rf "$CARGO_TARGET_DIR"
done
