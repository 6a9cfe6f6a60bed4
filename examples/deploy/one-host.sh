#!/bin/sh
# SuperLink, sites and server as processes of their own, all on this host: what a deployment over
# many hosts starts on each of them. Usage: one-host.sh CONFIG FOLDER [deploy options, such as --set]
set -eu
config=$(realpath "$1") out=$2
shift 2
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
secure-fedrec deploy "$config" --out "$out" --prepare "$@"
out=$(cd "$out" && pwd)
export FLWR_HOME="$out/flower/home"
link=127.0.0.1:8000
mkdir -p "$FLWR_HOME"

# The operator of the SuperLink: certificates, and the SuperLink itself.
cd "$out/flower"
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=deployment -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj /CN=superlink -keyout superlink.key -out superlink.csr \
    2>/dev/null
printf 'subjectAltName=IP:127.0.0.1\n' >san
openssl x509 -req -in superlink.csr -CA ca.pem -CAkey ca.key -days 30 -extfile san \
    -out superlink.pem 2>/dev/null
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "%s"\nroot-certificates = "%s"\n' \
    "$link" "$out/flower/ca.pem" >"$FLWR_HOME/config.toml"
flower-superlink --host 127.0.0.1 --port 8000 --enable-supernode-auth \
    --disable-runtime-dependency-installation --isolation process \
    --ssl-certfile superlink.pem --ssl-keyfile superlink.key --ssl-ca-certfile ca.pem \
    >superlink.log 2>&1 &
started=$!
trap 'kill $started 2>/dev/null; wait' EXIT INT TERM
until openssl s_client -connect "$link" -CAfile ca.pem </dev/null >/dev/null 2>&1; do sleep 1; done

# Every site: a key by which the SuperLink knows its SuperNode, and its process.
port=9100
for site in "$out"/sites/*; do
    ssh-keygen -q -t ecdsa -b 384 -N '' -f "$site/node.key"
    flwr supernode register "$site/node.key.pub" here >/dev/null
    python -m audits.deploy.site "$out/agreement" "$site" --superlink "$link" \
        --certificates "$out/flower/ca.pem" --port $port >"$site/site.log" 2>&1 &
    started="$started $!"
    port=$((port + 1))
done

# The server.
secure-fedrec deploy "$config" --out "$out" --resume --superlink "$link" \
    --certificates "$out/flower/ca.pem" "$@"
