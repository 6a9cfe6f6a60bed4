"""The process of one mix: ``python -m audits.deploy.mix FOLDER --layer L --listen HOST:PORT``.

It draws a key that never leaves it, writes the public half to ``FOLDER/keys/L-N``, waits until the
operator has published ``FOLDER/directory`` with that key in it, and mixes until it is terminated.
``FOLDER/addresses.json`` says where nodes are: {"L-N": "HOST:PORT"}, recipients in the layer after
the last mixes; ``FOLDER/operator.pub`` is the key of the directory's signer.
"""

import argparse
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from audits.deploy.logs import logged
from audits.deploy.options import add_log_format
from secure_fedrec.core.files import replace_file
from secure_fedrec.data.refusals import refused
from secure_fedrec.engines.cascade import Address, Mix, load_directory
from secure_fedrec.errors import ConfigError, FedRecError, HostError
from secure_fedrec.protection.routing import KEMS, MixNode, OpeningKey
from secure_fedrec.protection.session.operator import public_key

_PATIENCE = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process, and return its exit code."""
    parsed = parser().parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with logged(parsed.log_format):
        try:
            _serve(parsed, ended)
        except FedRecError as refused:
            logging.getLogger("secure-fedrec").error("%s", refused)
            return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    words = argparse.ArgumentParser(prog="audits.deploy.mix", description=__doc__)
    words.add_argument("folder", type=Path, help="where keys and the directory are exchanged")
    words.add_argument("--layer", type=int, required=True)
    words.add_argument("--node", type=int, default=0, help="its number in the layer")
    words.add_argument("--listen", required=True, metavar="HOST:PORT")
    words.add_argument("--kem", choices=sorted(KEMS), default="x25519")
    add_log_format(words)
    return words


def address(text: str) -> Address:
    """Host and port.

    Raises:
        ConfigError: the text is not an address.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError("address", text, "must be HOST:PORT")
    return host, int(port)


def addresses(folder: Path, layer: int) -> dict[int, Address]:
    """The addresses of a layer's nodes, by number.

    Raises:
        DataError: the file is missing or damaged.
        ConfigError: an entry is not an address.
    """
    path = folder / "addresses.json"
    with refused(path, "does not name nodes: {}", OSError, ValueError, AttributeError):
        found = json.loads(path.read_bytes())
        places = {tuple(map(int, name.split("-"))): text for name, text in found.items()}
    return {node: address(text) for (of, node), text in places.items() if of == layer}


def operator_of(folder: Path) -> bytes:
    """Public key of the operator that signs the directory.

    Raises:
        DataError, ConfigError: the file is missing or not a key.
    """
    path = folder / "operator.pub"
    with refused(path, "cannot be read: {0.strerror}", OSError):
        return public_key(path.read_text(encoding="ascii").strip())


def _serve(parsed: argparse.Namespace, ended: threading.Event) -> None:
    key = OpeningKey.generate(KEMS[parsed.kem])
    keys = parsed.folder / "keys"
    keys.mkdir(parents=True, exist_ok=True)
    replace_file(keys / f"{parsed.layer}-{parsed.node}", key.public.data)
    end = time.monotonic() + _PATIENCE
    while not (parsed.folder / "directory").exists():
        if ended.wait(0.2):
            return
        if time.monotonic() > end:
            raise HostError(f"no directory came in {_PATIENCE:.0f} s")
    directory = load_directory(parsed.folder / "directory", operator_of(parsed.folder))
    node = MixNode(layer=parsed.layer, node=parsed.node)
    node.rotate(directory, key)
    mix = Mix(
        node,
        layer=parsed.layer,
        directory=directory,
        listen=address(parsed.listen),
        addresses=addresses(parsed.folder, parsed.layer + 1),
    )
    try:
        ended.wait()
    finally:
        mix.close()


if __name__ == "__main__":
    sys.exit(main())
