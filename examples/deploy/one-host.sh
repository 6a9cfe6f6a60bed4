#!/bin/sh
# SuperLink, sites and server as processes of their own, all on this host: what a deployment over
# many hosts starts on each of them. Usage: one-host.sh CONFIG FOLDER [deploy options, such as --set]
set -eu
config=$(realpath "$1") out=$2 here=$(dirname "$(realpath "$0")")
shift 2
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
sh "$here/prepare.sh" "$config" "$out" IP:127.0.0.1 "$@"
out=$(cd "$out" && pwd)
export FLWR_HOME="$out/flower/home"
link=127.0.0.1:8000

flower-superlink --host 127.0.0.1 --port 8000 --enable-supernode-auth \
    --disable-runtime-dependency-installation --isolation process \
    --ssl-certfile "$out/flower/superlink.pem" --ssl-keyfile "$out/flower/superlink.key" \
    --ssl-ca-certfile "$out/flower/ca.pem" >"$out/flower/superlink.log" 2>&1 &
started=$!
trap 'kill $started 2>/dev/null; wait' EXIT INT TERM
sh "$here/register.sh" "$out/flower" "$link"
port=9100
for site in "$out"/sites/*; do
    python -m audits.deploy.site "$out/agreement" "$site" --superlink "$link" \
        --certificates "$out/agreement/ca.pem" --port $port >"$site/site.log" 2>&1 &
    started="$started $!"
    port=$((port + 1))
done
secure-fedrec deploy "$config" --out "$out" --resume --superlink "$link" \
    --certificates "$out/agreement/ca.pem" "$@"
