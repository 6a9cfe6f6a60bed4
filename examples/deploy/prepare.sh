#!/bin/sh
# Whoever prepares: folders of all hosts, keys of SuperNodes, a CA and the SuperLink's certificate.
# Usage: prepare.sh CONFIG FOLDER NAMES [deploy options]; NAMES of the SuperLink as a certificate has
# them, such as DNS:superlink or IP:127.0.0.1. The CA's key is forgotten.
set -eu
config=$(realpath "$1") out=$2 names=$3
shift 3
secure-fedrec deploy "$config" --out "$out" --prepare "$@"
mkdir -p "$out/flower/home"
cd "$out/flower"
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=deployment -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj /CN=superlink -keyout superlink.key -out superlink.csr \
    2>/dev/null
printf 'subjectAltName=%s\n' "$names" >san
openssl x509 -req -in superlink.csr -CA ca.pem -CAkey ca.key -days 30 -extfile san \
    -out superlink.pem 2>/dev/null
rm ca.key superlink.csr san
cp ca.pem ../agreement/
mkdir -p nodes
for site in ../sites/*; do
    ssh-keygen -q -t ecdsa -b 384 -N '' -f "$site/node.key"
    mv "$site/node.key.pub" "nodes/$(basename "$site").pub"
done
