"""A mix cascade as processes: cells over TCP, from senders through every layer to the recipients.

A connection brings cells of one size, the layer's: u32 count | the cells; and hears u32, how many
were read. Cells are sealed to the node that gets them and to all behind it, so the lines are not
encrypted further; an observer of the lines sees how many cells go where and when, as in any mix
network. A node's key exists only in its process, and cells of its epoch are lost with it: their
senders do not find them in the recipient's list of receipts, and send again under the next
directory.

A directory is signed by the operator: "SFMD" | 64 signature | ``Directory.encode``. A party that
could insert its own keys would control every mix at once.
"""

import contextlib
import logging
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import DataError, HostError, ProtocolError, WireError
from secure_fedrec.protection.routing import Directory, MixNode, address_of
from secure_fedrec.protection.session import refusals_of

Address = tuple[str, int]
"""Host and port."""

_MAGIC, _DOMAIN = b"SFMD", b"secure-fedrec|v1|directory|"
_SIGNATURE_BYTES = 64
_COUNT = struct.Struct("<I")
_MOST_CELLS = 2**20
_PATIENCE = 30.0

log = logging.getLogger("secure-fedrec")


def save_directory(directory: Directory, path: Path, operator: Ed25519PrivateKey) -> None:
    """Sign a directory and write it.

    Raises:
        OSError: it cannot be written.
    """
    data = directory.encode()
    replace_file(path, _MAGIC + operator.sign(_DOMAIN + data) + data)


def load_directory(path: Path, operator: bytes) -> Directory:
    """Read a directory.

    Args:
        path: path of the file.
        operator: 32 bytes, the public key that must have signed it.

    Raises:
        DataError: it is missing, damaged, or not the operator's.
    """
    try:
        found = path.read_bytes()
        head, data = found[: len(_MAGIC)], found[len(_MAGIC) + _SIGNATURE_BYTES :]
        if head != _MAGIC:
            raise WireError("no directory")
        signature = found[len(_MAGIC) : len(_MAGIC) + _SIGNATURE_BYTES]
        Ed25519PublicKey.from_public_bytes(operator).verify(signature, _DOMAIN + data)
        return Directory.decode(data)
    except InvalidSignature:
        raise DataError(path, "is not signed by the operator") from None
    except (OSError, ValueError, WireError) as damage:
        raise DataError(path, f"is not a directory of mixes: {damage}") from damage


def hand_in(cells: Sequence[bytes], address: Address, *, patience: float = _PATIENCE) -> None:
    """Send cells to a node.

    Args:
        cells: all of one size.
        address: address of the node.
        patience: seconds to wait for the connection, and for the answer.

    Raises:
        HostError: the node does not answer in time, or has not read all of them.
    """
    end = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection(address, patience) as line:
                line.sendall(_COUNT.pack(len(cells)) + b"".join(cells))
                answer = line.recv(_COUNT.size, socket.MSG_WAITALL)
        except OSError as failure:
            if time.monotonic() > end:
                raise HostError(f"no node at {address[0]}:{address[1]}: {failure}") from failure
            time.sleep(0.1)
            continue
        if answer != _COUNT.pack(len(cells)):
            raise HostError(f"the node at {address[0]}:{address[1]} did not take all cells")
        return


class Inlet:
    """A node's inlet for cells: a listening socket, and a thread per connection.

    Args:
        listen: host and port; port 0 takes a free one.
        size: bytes of a cell.
        take: handles one cell; one call at a time. A cell that it refuses (``ProtocolError``,
            ``WireError``) costs its sender that cell, and has no other effect.
        then: is called after the cells of a connection.

    Raises:
        OSError: the address is not free.
    """

    def __init__(
        self,
        listen: Address,
        size: int,
        take: Callable[[bytes], None],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        lock = threading.Lock()

        class Handler(socketserver.StreamRequestHandler):
            timeout = _PATIENCE

            def handle(self) -> None:
                head = self.rfile.read(_COUNT.size)
                count = _COUNT.unpack(head)[0] if len(head) == _COUNT.size else 0
                if not 0 < count <= _MOST_CELLS:
                    return
                cells = [self.rfile.read(size) for _ in range(count)]
                if len(cells[-1]) == size:
                    with lock:
                        if why := refusals_of(cells, take):
                            log.warning("refused%s", why)
                        then()
                    self.wfile.write(_COUNT.pack(count))

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

            def handle_error(self, request: object, client_address: object) -> None:
                log.warning("a connection broke off")

        self._server = Server(listen, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Take in no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Mix:
    """A mix's process: receives cells, and sends every batch to the next nodes.

    Args:
        node: the mix, with the key of the directory's epoch.
        layer: of it.
        directory: keys and sizes.
        listen: where it takes cells in.
        addresses: addresses of the nodes of the next layer, by number.

    Attributes:
        inlet: the inlet for cells.

    Raises:
        OSError: the address is not free.
    """

    def __init__(
        self,
        node: MixNode,
        *,
        layer: int,
        directory: Directory,
        listen: Address,
        addresses: Mapping[int, Address],
    ) -> None:
        self._node = node
        self._addresses = addresses
        self._carriers: list[threading.Thread] = []
        self.inlet = Inlet(listen, directory.config.size_at(layer), node.receive, self._mix)

    def close(self) -> None:
        """Stop receiving cells; cells in transit are still delivered."""
        self.inlet.close()
        for carrier in self._carriers:
            carrier.join()

    def _mix(self) -> None:
        with contextlib.suppress(ProtocolError):  # too few cells to mix: they wait
            batch = self._node.flush()
            self._carriers = [thread for thread in self._carriers if thread.is_alive()]
            carrier = threading.Thread(target=self._carry, args=(batch,))
            carrier.start()
            self._carriers.append(carrier)

    def _carry(self, batch: Sequence[bytes]) -> None:
        """Send a batch to the next nodes, each node's cells in the order of the batch."""
        groups: dict[int, list[bytes]] = {}
        for cell in batch:
            groups.setdefault(address_of(cell).node, []).append(cell)
        for number in sorted(groups):
            try:
                hand_in(groups[number], self._addresses[number])
            except (HostError, KeyError) as lost:
                log.error("%d cells are lost: %s", len(groups[number]), lost)
