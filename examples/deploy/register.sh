#!/bin/sh
# The operator of the SuperLink: let the SuperNodes in, by the public halves of their keys.
# Usage: register.sh FLOWER HOST:PORT; FLOWER is the folder with ca.pem and nodes/.
set -eu
flower=$(cd "$1" && pwd) link=$2
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_HOME="$flower/home"
mkdir -p "$FLWR_HOME"
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "%s"\nroot-certificates = "%s"\n' \
    "$link" "$flower/ca.pem" >"$FLWR_HOME/config.toml"
until openssl s_client -connect "$link" -CAfile "$flower/ca.pem" </dev/null >/dev/null 2>&1; do
    sleep 1
done
for key in "$flower"/nodes/*.pub; do
    flwr supernode register "$key" here >/dev/null
done
