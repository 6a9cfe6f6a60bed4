#!/bin/sh
# The app on a SuperLink and four SuperNodes, all processes of this host, with TLS and keys for
# SuperNodes. Usage: one-host.sh plain|protected FOLDER [run configuration, such as rounds=5]
set -eu
here=$(cd "$(dirname "$0")" && pwd) which=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_HOME="$out/flower"
link=127.0.0.1:8000
mkdir -p "$FLWR_HOME" "$out/server"

# Keys: every party makes its own, an operator signs the list, and everybody is given both.
secure-fedrec roster new operator "$out/operator.key" >/dev/null
secure-fedrec roster new server "$out/server/server.identity" >/dev/null
secure-fedrec roster add "$out/parties" server "$out/server/server.identity.pub" >/dev/null
for n in 0 1 2 3; do
    mkdir -p "$out/$n"
    secure-fedrec roster new "client:$n" "$out/$n/client.identity" >/dev/null
    secure-fedrec roster add "$out/parties" "client:$n" "$out/$n/client.identity.pub" >/dev/null
done
secure-fedrec roster sign "$out/parties" --operator "$out/operator.key" --out "$out/roster" --version 1
for each in server 0 1 2 3; do
    cp "$out/roster" "$out/$each/roster"
    cp "$out/operator.key.pub" "$out/$each/operator.pub"
done

# The SuperLink, and its certificate.
cd "$FLWR_HOME"
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=quickstart -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj /CN=superlink -keyout link.key -out link.csr 2>/dev/null
printf 'subjectAltName=IP:127.0.0.1\n' >san
openssl x509 -req -in link.csr -CA ca.pem -CAkey ca.key -days 30 -extfile san -out link.pem 2>/dev/null
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "%s"\nroot-certificates = "%s"\n' \
    "$link" "$FLWR_HOME/ca.pem" >config.toml
flower-superlink --host 127.0.0.1 --port 8000 --enable-supernode-auth \
    --disable-runtime-dependency-installation \
    --ssl-certfile link.pem --ssl-keyfile link.key --ssl-ca-certfile ca.pem >superlink.log 2>&1 &
started=$!
trap 'kill $started 2>/dev/null; wait' EXIT INT TERM
until openssl s_client -connect "$link" -CAfile ca.pem </dev/null >/dev/null 2>&1; do sleep 1; done

# Every client: a SuperNode, and for the protected app a process that answers with its own code.
for n in 0 1 2 3; do
    ssh-keygen -q -t ecdsa -b 384 -N '' -f "$out/$n/node.key"
    flwr supernode register "$out/$n/node.key.pub" here >/dev/null
    isolation=subprocess
    if [ "$which" = protected ]; then
        isolation=process
        (cd "$here/protected" && exec python site.py "127.0.0.1:910$n") >"$out/$n/site.log" 2>&1 &
        started="$started $!"
    fi
    flower-supernode --root-certificates ca.pem --auth-supernode-private-key "$out/$n/node.key" \
        --superlink "$link" --host 127.0.0.1 --port "910$n" --isolation $isolation \
        --node-config "partition-id=$n num-partitions=4 secure-fedrec=\"$out/$n\"" \
        >"$out/$n/supernode.log" 2>&1 &
    started="$started $!"
done

keys=
[ "$which" = plain ] || keys="keys=\"$out/server\""
flwr run "$here/$which" here --stream --run-config "model=\"$out/model.pt\" $keys ${3:-}"
