# shellcheck shell=bash
# A real control plane on loopback for the end-to-end tests: etcd, kube-apiserver (RBAC) and kube-scheduler.
# Source it; it defines functions only. Needs curl and openssl, and Go for the first build (see build.sh).
#
# control_plane_start DIR [SCHEDULER_CONFIG]
#     Starts all three and returns when they are ready; on failure shows the log's end, stops what ran, returns 1.
#     Call it in the shell that uses the kube_* functions, not in $(...) or a pipe: they read CONTROL_PLANE_DIR, which
#     it sets. Another shell sets that itself.
#     SCHEDULER_CONFIG is a KubeSchedulerConfiguration in block YAML (default: $STOKER_E2E_SCHEDULER_CONFIG, else
#     scheduler.yaml beside this file); its clientConnection is replaced by this control plane's.
#     STOKER_E2E_START_TIMEOUT is the time each peer has to get ready, in seconds (default 120).
#     With CONTROL_PLANE_AUDIT set, kube-apiserver writes who asked for what into DIR/audit.log, an event a line.
#     Leaves in DIR:
#       kubeconfig            cluster admin (group system:masters), with CA and token inside
#       admin.token           that token
#       server                URL of kube-apiserver
#       apiserver.crt         its self-signed certificate, which is its own CA file
#       client-ca.{crt,key}   CA whose client certificates it accepts
#       PEER.pid, PEER.log    for etcd, kube-apiserver, kube-scheduler
#
# control_plane_stop DIR
#     Ends the peers of DIR (SIGTERM, after 10 s SIGKILL) and no other process. May be called twice, or after a failed start.
#
# control_plane_free_ports COUNT
#     Prints COUNT different loopback TCP ports that nobody listens on, one a line.
#
# kube_get PATH, kube_post PATH <JSON, kube_patch PATH TYPE <PATCH, kube_delete PATH
#     One request as admin, answer on stdout; an HTTP status of 400 or more prints the answer and returns 22.
#     PATH is what follows the host: '/api/v1/nodes?limit=1'. TYPE is merge, strategic, json or apply; apply takes YAML
#     and creates what is missing, its PATH ends in '?fieldManager=NAME&force=true'.
#
# kube_service_account_kubeconfig NAMESPACE NAME
#     Prints a kubeconfig with a token of that ServiceAccount (it must exist), valid for a day: a client that can do
#     only what RBAC gives this account.

_peers_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

control_plane_start() {
  local dir config=${2:-${STOKER_E2E_SCHEDULER_CONFIG:-$_peers_dir/scheduler.yaml}}
  mkdir -p "$1" && dir=$(cd "$1" && pwd) || return 1
  if [ -e "$dir/etcd.pid" ]; then
    echo "control_plane_start: $dir has a control plane already; control_plane_stop it first" >&2
    return 1
  fi
  CONTROL_PLANE_DIR=$dir
  _control_plane_start "$dir" "$config" && return
  control_plane_stop "$dir"
  return 1
}

_control_plane_start() {
  local dir=$1 config=$2 bin ports token
  bin=$("$_peers_dir/build.sh") || return 1
  bin=${bin##*$'\n'}
  mapfile -t ports < <(control_plane_free_ports 4)
  [ "${#ports[@]}" -eq 4 ] || return 1
  local etcd=http://127.0.0.1:${ports[0]} etcd_peer=http://127.0.0.1:${ports[1]}
  local server=https://127.0.0.1:${ports[2]} scheduler=https://127.0.0.1:${ports[3]}
  token=$(openssl rand -hex 16) || return 1
  echo "$server" >"$dir/server"
  _control_plane_secrets "$dir" "$token" || return 1

  _peer_start "$dir" "$bin/etcd" --name peer --data-dir "$dir/etcd" --log-level error --unsafe-no-fsync \
    --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "$etcd_peer" --initial-advertise-peer-urls "$etcd_peer" --initial-cluster "peer=$etcd_peer"
  # kube-apiserver dies if its store is not there yet.
  _peer_wait "$dir" etcd curl --noproxy '*' -sf "$etcd/health" || return 1

  # No controller-manager makes the objects that these two admission plugins wait for: a ServiceAccount in each
  # namespace, and the removal of the not-ready taint. The advertised address would otherwise be looked for among the
  # machine's interfaces; as a loopback address it may not stand in an Endpoints object, so none is written.
  local audit=()
  if [ -n "${CONTROL_PLANE_AUDIT:-}" ]; then
    printf '%s\n' 'apiVersion: audit.k8s.io/v1' 'kind: Policy' 'omitStages: [RequestReceived]' 'rules: [{level: Metadata}]' >"$dir/audit.yaml"
    audit=(--audit-policy-file "$dir/audit.yaml" --audit-log-path "$dir/audit.log" --audit-log-mode blocking)
  fi
  _peer_start "$dir" "$bin/kube-apiserver" "${audit[@]}" --etcd-servers "$etcd" --cert-dir "$dir" \
    --bind-address 127.0.0.1 --secure-port "${ports[2]}" --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$dir/sa.key" --service-account-signing-key-file "$dir/sa.key" \
    --token-auth-file "$dir/tokens.csv" --client-ca-file "$dir/client-ca.crt" --authorization-mode RBAC \
    --disable-admission-plugins ServiceAccount,TaintNodesByCondition --enable-bootstrap-token-auth \
    --service-cluster-ip-range 10.96.0.0/16 --allow-privileged
  _peer_wait "$dir" kube-apiserver kube_get /readyz || return 1
  # Made just after ready: the first pod of a test would be refused without it.
  _peer_wait "$dir" kube-apiserver kube_get /api/v1/namespaces/default || return 1
  (umask 077 && _kubeconfig "$dir" "$token" >"$dir/kubeconfig") || return 1

  # Skipping the lookup of a front proxy's CA, which is not there: it fills the log with errors.
  _scheduler_config "$config" "$dir/kubeconfig" >"$dir/scheduler.yaml" || return 1
  _peer_start "$dir" "$bin/kube-scheduler" --config "$dir/scheduler.yaml" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "${ports[3]}" --authentication-skip-lookup \
    --authentication-kubeconfig "$dir/kubeconfig" --authorization-kubeconfig "$dir/kubeconfig"
  # Its certificate lives only in its memory.
  _peer_wait "$dir" kube-scheduler curl --noproxy '*' -skf "$scheduler/readyz" || return 1
}

control_plane_stop() {
  local dir=$1 name pid deadline
  # The store goes last: kube-apiserver cannot end in order without it.
  for name in kube-scheduler kube-apiserver etcd; do
    pid=$(cat "$dir/$name.pid" 2>/dev/null) || continue
    if _peer_alive "$name" "$pid"; then
      kill "$pid" 2>/dev/null || true # it may end by itself meanwhile
      deadline=$((SECONDS + 10))
      while _peer_alive "$name" "$pid"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
          kill -KILL "$pid" 2>/dev/null || true
          deadline=$((SECONDS + 10))
        fi
        sleep 0.05
      done
    fi
    rm -f "$dir/$name.pid"
  done
}

control_plane_free_ports() {
  local count=$1 port
  # CONTROL_PLANE_PORTS: of which, for two who look at one time.
  # Below the range from which the kernel takes ports of outgoing connections, so none is lost before it is used.
  while [ "$count" -gt 0 ] && read -r port; do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      count=$((count - 1))
    fi
  done < <(shuf -i "${CONTROL_PLANE_PORTS:-20000-31999}" -n 100)
  [ "$count" -eq 0 ]
}

kube_get() { _kube GET "$1"; }
kube_delete() { _kube DELETE "$1"; }
kube_post() { _kube POST "$1" --header 'Content-Type: application/json' --data-binary @-; }
kube_patch() {
  local content
  case $2 in
    merge | json) content=application/$2-patch+json ;;
    strategic) content=application/strategic-merge-patch+json ;;
    apply) content=application/apply-patch+yaml ;;
    *) echo "kube_patch: '$2' is not merge, strategic, json or apply" >&2 && return 2 ;;
  esac
  _kube PATCH "$1" --header "Content-Type: $content" --data-binary @-
}

kube_service_account_kubeconfig() {
  local answer token
  answer=$(kube_post "/api/v1/namespaces/$1/serviceaccounts/$2/token" <<<'{
    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}
  }') || { echo "$answer" >&2 && return 1; }
  token=$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' <<<"$answer")
  [ -n "$token" ] && _kubeconfig "$CONTROL_PLANE_DIR" "$token" "$1"
}

# --- below: for this file only ---

# METHOD PATH [CURL_ARGUMENT...]
_kube() {
  local dir=${CONTROL_PLANE_DIR:?call control_plane_start first} server
  server=$(cat "$dir/server") || return 1
  curl --config "$dir/admin.curl" --request "$1" "${@:3}" "$server$2"
}

# DIR TOKEN: keys and tokens, readable by the owner only. curl gets its token in a file, as arguments are public.
_control_plane_secrets() (
  cd "$1" && umask 077 || exit 1
  echo "$2" >admin.token
  echo "$2,admin,admin,system:masters" >tokens.csv
  cat >admin.curl <<END
silent
show-error
fail-with-body
globoff
max-time = 60
noproxy = "*"
cacert = "$1/apiserver.crt"
header = "Authorization: Bearer $2"
END
  openssl ecparam -name prime256v1 -genkey -noout -out sa.key || exit 1
  local said
  said=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=client-ca \
    -keyout client-ca.key -out client-ca.crt 2>&1) || { echo "$said" >&2 && exit 1; }
)

# DIR TOKEN [NAMESPACE]
_kubeconfig() {
  cat <<END
apiVersion: v1
kind: Config
current-context: peers
contexts:
  - name: peers
    context: {cluster: peers, user: peers, namespace: ${3:-default}}
clusters:
  - name: peers
    cluster:
      server: $(cat "$1/server")
      certificate-authority-data: $(base64 -w 0 "$1/apiserver.crt")
users:
  - name: peers
    user: {token: $2}
END
}

# CONFIG KUBECONFIG: with a --config, kube-scheduler ignores --kubeconfig and connects as the file says.
_scheduler_config() {
  awk '/^[^ #]/ { ours = /^clientConnection:/ } !ours' "$1" || return 1
  printf '\nclientConnection:\n  kubeconfig: "%s"\n' "$2"
}

# DIR BINARY [ARGUMENT...]
_peer_start() {
  local name=${2##*/}
  "${@:2}" >"$1/$name.log" 2>&1 </dev/null &
  echo $! >"$1/$name.pid"
  disown # else the shell reports its end as "Terminated"
}

# NAME PID: does this process still run, and is it that peer and not another process that got its number?
_peer_alive() {
  awk -v name="$1" '
    $1 == "Name:" { same = $2 == name }
    $1 == "State:" { runs = $2 !~ /[ZX]/ }
    END { exit !(same && runs) }
  ' "/proc/$2/status" 2>/dev/null
}

# DIR NAME COMMAND...: repeats COMMAND until it succeeds; fails with the log's end when the peer dies or takes too long.
_peer_wait() {
  local dir=$1 name=$2 pid deadline=$((SECONDS + ${STOKER_E2E_START_TIMEOUT:-120}))
  shift 2
  pid=$(cat "$dir/$name.pid") || return 1
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
      echo "$name ended before it was ready; the end of $dir/$name.log:" >&2
    elif [ "$SECONDS" -ge "$deadline" ]; then
      echo "$name was not ready in time; the end of $dir/$name.log:" >&2
    else
      sleep 0.05
      continue
    fi
    tail -n 30 "$dir/$name.log" >&2
    return 1
  done
}
