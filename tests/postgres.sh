#!/usr/bin/env bash
# The journal in a real PostgreSQL: the tests of SQLite's journal once more, and those of two replicas. Ends the server itself.
#
#   tests/postgres.sh [TEST...]   all, or those whose names contain one of these
#
#   STOKER_BUILT   a list of what was built already (tests/build.sh); else it is built
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=peers/postgres.sh
source tests/peers/postgres.sh

dir=$(mktemp -d "${TMPDIR:-/tmp}/stoker-postgres.XXXXXX")
chmod 711 "$dir"
trap 'postgres_stop "$dir"; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

if [ -z "${STOKER_BUILT:-}" ]; then
  tests/build.sh >"$dir/built"
  STOKER_BUILT=$dir/built
fi
journal=$(awk '$1 == "lib" && $2 == "stoker_journal" { print $3 }' "$STOKER_BUILT")
[ -n "$journal" ] || { echo "postgres.sh: the journal's tests are not built" >&2; exit 1; }
postgres_start "$dir"
STOKER_TEST_POSTGRES=$(cat "$dir/url")
export STOKER_TEST_POSTGRES
# What is SQLite's alone stays out; what is PostgreSQL's alone is left out elsewhere.
cd provider/journal
"$journal" --quiet --include-ignored --skip tests::sqlite --skip is_measured "$@"
