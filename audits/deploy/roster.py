"""``secure-fedrec roster``: keys of parties and of the operator, and the list that it signs.

Every party makes its own key (``new``) and gives the operator the public half, over a channel that
neither SuperLink nor server controls. The operator lists it (``add``), signs the list (``sign``),
and hands the roster out; every party checks it with the operator's public key (``show``). A party
that lost its key gets a new key (``add --replace``), or is left out (``remove``), and the list is
signed again, under a greater version. An operator that takes over names the previous operator
(``sign --previous-operator``). If rounds use public randomness, the operator publishes one value
per epoch (``beacon``), over a channel of the same kind: for a deployment, or for the terms of a
mean, whose hosts do not have a blueprint. If a layer has its own key, such as Paillier's, the host
that is to hold it makes it (``layer-key``), and its public half is handed out like the operator's.
"""

import argparse
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.deploy.blueprint import Blueprint
from audits.deploy.homes import load_agreement, read_roster
from secure_fedrec.core.files import replace_file
from secure_fedrec.engines.distributed import Agreement, Keys
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.session import Identity, Role, Roster
from secure_fedrec.protection.session.beacon import SignedBeacon, publish
from secure_fedrec.protection.session.operator import (
    load_operator,
    name_of,
    node_named,
    public_key,
    read_parties,
    read_public_key,
    save_operator,
    write_parties,
)

_OPERATOR = "operator"


def roster(arguments: argparse.Namespace) -> int:
    """``roster new|add|remove|sign|show|beacon|layer-key``."""
    actions = {"new": _new, "add": _add, "remove": _remove, "sign": _sign, "show": _show}
    actions |= {"beacon": _beacon, "layer-key": _layer_key}
    print(actions[arguments.action](arguments))
    return 0


def _require_new(file: Path) -> None:
    if file.exists():
        raise ConfigError("file", str(file), "exists already: keys are not overwritten")


def _public(file: Path) -> Path:
    """The file for the public half of a key."""
    return file.with_name(f"{file.name}.pub")


def _new(arguments: argparse.Namespace) -> str:
    _require_new(arguments.file)
    if arguments.party == _OPERATOR:
        key = Ed25519PrivateKey.generate()
        save_operator(key, arguments.file)
        public = key.public_key().public_bytes_raw().hex()
    else:
        identity = Identity.generate(node_named(arguments.party))
        identity.save(arguments.file)
        public = identity.public.hex()
    replace_file(_public(arguments.file), f"{public}\n".encode())
    return public


def _layer_key(arguments: argparse.Namespace) -> str:
    _require_new(arguments.file)
    stack = Blueprint.load(arguments.agreement / "blueprint.json").plan().stack
    keys = hosting_of(stack).shared_keys()
    if not keys.private:
        raise ConfigError("agreement", str(arguments.agreement), "no layer has a key of its own")
    (secret,) = set(keys.private.values())
    holders = ", ".join(str(node) for node in keys.private)
    replace_file(arguments.file, secret, private=True, durable=True)
    replace_file(_public(arguments.file), keys.public)
    return f"{holders}: {sha256(keys.public).hexdigest()}"


def _key(text: str) -> bytes:
    """A public key, given directly or as a file that ``new`` wrote.

    Raises:
        ConfigError: the text is neither a key nor such a file.
    """
    path = Path(text)
    return read_public_key(path) if path.is_file() else public_key(text)


def _add(arguments: argparse.Namespace) -> str:
    parties, node = read_parties(arguments.list), node_named(arguments.party)
    if node in parties and not arguments.replace:
        raise ConfigError("party", arguments.party, "is listed already; --replace changes its key")
    key = _key(arguments.key)
    write_parties(arguments.list, {**parties, node: key})
    return f"{len({**parties, node: key})} parties"


def _remove(arguments: argparse.Namespace) -> str:
    parties, node = read_parties(arguments.list), node_named(arguments.party)
    if node not in parties:
        raise ConfigError("party", arguments.party, "is not listed", map(name_of, parties))
    write_parties(arguments.list, {each: key for each, key in parties.items() if each != node})
    return f"{len(parties) - 1} parties"


def _sign(arguments: argparse.Namespace) -> str:
    if arguments.out.exists():
        operator = load_operator(arguments.operator).public_key().public_bytes_raw()
        if arguments.previous_operator is not None:
            operator = _key(arguments.previous_operator)
        last = read_roster(arguments.out, operator).version
        if arguments.version <= last:
            raise ConfigError("--version", arguments.version, f"must be above {last}, the last one")
    signed = Roster.of(
        load_operator(arguments.operator),
        read_parties(arguments.list),
        version=arguments.version,
        round_floor=arguments.round_floor,
    )
    replace_file(arguments.out, signed.encoded)
    return signed.hash.hex()


def _agreed(folder: Path, terms: str | None) -> Agreement:
    """The agreement that the randomness is for: a deployment, or a mean's terms.

    Raises:
        ConfigError, DataError, ProtocolError: the folder is incomplete or damaged, or this is not a
            digest.
    """
    if terms is None:
        return load_agreement(folder)[1]
    try:
        digest = bytes.fromhex(terms)
    except ValueError:
        digest = b""
    if len(digest) != sha256().digest_size:
        raise ConfigError("--terms", terms, "must be the 64 digits that terms.digest.hex() gives")
    keys = Keys(folder)
    return keys.agreement(digest, keys.roster())


def _beacon(arguments: argparse.Namespace) -> str:
    agreed = _agreed(arguments.agreement, arguments.terms)
    key = load_operator(arguments.operator)
    if key.public_key().public_bytes_raw() != agreed.roster.operator:
        raise ConfigError("--operator", str(arguments.operator), "is not that of the roster")
    source = SignedBeacon(
        arguments.out, operator=agreed.roster.operator, federation=agreed.federation
    )
    epoch = max([arguments.after, *source.values()]) + 1
    path = publish(arguments.out, key, federation=agreed.federation, epoch=epoch)
    return str(path)


def _show(arguments: argparse.Namespace) -> str:
    found = read_roster(arguments.roster, _key(arguments.operator))
    parties = {name_of(node): found.key_of(node).hex() for node in found.nodes()}
    if arguments.json:
        facts: dict[str, Any] = {"version": found.version, "round_floor": found.round_floor}
        return json.dumps({**facts, "hash": found.hash.hex(), "parties": parties}, indent=2)
    counts = (f"{found.count(role)} {role.name.lower()}s" for role in Role if found.count(role))
    head = f"version {found.version}, from round {found.round_floor}: {', '.join(counts)}"
    return "\n".join([head, *(f"{name} {key}" for name, key in parties.items())])
