# shellcheck shell=bash
# A real PostgreSQL on loopback. Source it; it defines functions only. Needs Debian's postgresql, or initdb and pg_ctl on the PATH.
#
# postgres_start DIR [PORT]
#     Makes a database in DIR/data where there is none, starts its server and returns when it answers; on failure shows its log. Leaves
#     DIR/url, the address of the database `stoker`, and DIR/data/postmaster.pid. PORT is chosen where none is given.
#
# postgres_sql DIR STATEMENTS
#     Runs them in the database `stoker` as its owner, and prints what they answer, one row a line.
#
# postgres_stop DIR
#     Ends the server of DIR at once, as a crash does. May be called twice.

_postgres() {
  local bin
  bin=$(find /usr/lib/postgresql -name pg_ctl -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
  # PostgreSQL does not run as root.
  if [ "$(id -u)" -eq 0 ]; then
    runuser -u postgres -- env PATH="$bin:$PATH" "$@"
  else
    PATH="$bin:$PATH" "$@"
  fi
}

postgres_start() {
  local dir port=${2:-}
  mkdir -p "$1" && dir=$(cd "$1" && pwd) || return 1
  if [ ! -e "$dir/data" ]; then
    mkdir -m 700 "$dir/data"
    [ "$(id -u)" -ne 0 ] || { chown postgres "$dir/data" && chmod o+x "$dir"; }
    # From here on for a test: what a crash of the machine would lose does not matter.
    _postgres initdb --no-sync --auth=trust --username=stoker --encoding=UTF8 --pgdata="$dir/data" >"$dir/initdb.log" 2>&1 ||
      { cat "$dir/initdb.log" >&2; return 1; }
  fi
  [ -n "$port" ] || port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  _postgres pg_ctl start --silent --wait --pgdata="$dir/data" --log="$dir/data/server.log" \
    --options="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories= -c max_connections=200 -c fsync=off" ||
    { tail -n 20 "$dir/data/server.log" >&2; return 1; }
  _postgres createdb --host=127.0.0.1 --port="$port" --username=stoker stoker 2>/dev/null || true
  echo "postgres://stoker@127.0.0.1:$port/stoker" >"$dir/url"
}

postgres_sql() {
  _postgres psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$(cat "$1/url")" --command="$2"
}

postgres_stop() {
  [ ! -e "$1/data/postmaster.pid" ] || _postgres pg_ctl stop --silent --mode=immediate --pgdata="$(cd "$1" && pwd)/data" || true
}
