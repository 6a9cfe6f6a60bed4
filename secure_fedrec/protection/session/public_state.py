"""The public state that vectors are computed from, as a client's own host hashes it.

Two sums over one state whose cohorts differ by one client give that client's vector away. So a
client reveals once for one state, purpose and layout (``journal``). The hash is the host's own: the
server's word for what the model is would be worth nothing. That does not stop a second sum: other
clients' reveals open the vector of one that was not asked to reveal, which then takes the state
again; and a state that differs in the last digit of one parameter is another state. What the sums
differ by is the vectors of a few. Only noise bounds that.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.errors import ConfigError


def labelled_hash(label: str, *parts: bytes) -> bytes:
    """SHA-256 over a label and length-prefixed parts, so that no two inputs share an encoding."""
    digest = sha256(f"secure-fedrec|v1|masking|{label}|".encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


NO_STATE: Final = bytes(32)
"""In the place of a hash: no state is named. Refused against an active server."""

LATER_STATE: Final = labelled_hash("state-named-with-the-vector")
"""In the place of a hash: keys are agreed on before the state is known. Each side names it before
UPLOAD (``MaskingClient.load``, ``MaskingServer.name_state``)."""


def state_hash(state: Mapping[str, npt.NDArray[Any]], *, purpose: str = "update") -> bytes:
    """Hash of a public state, for ``Expected.public_state`` and ``MaskingConfig.public_state``.

    Args:
        state: arrays by name (a model's parameters), of numbers or booleans; the order of names
            does not count, names, types, shapes and every bit do.
        purpose: what is computed from it. Sums of one layout that are owed for one state under two
            purposes (an update, a validation score) are two sums.

    Returns:
        32 bytes.

    Raises:
        ConfigError: nothing is in it, or an array holds objects.
    """
    if not state:
        raise ConfigError("state", "(empty)", "must name at least one array")
    parts = [purpose.encode()]
    for name in sorted(state):
        array = np.asarray(state[name])
        if array.dtype.kind not in "biufc":
            raise ConfigError(f"state.{name}", array.dtype, "must hold numbers")
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        described = f"{little.dtype.str}{array.shape}"
        parts += [name.encode(), described.encode(), little.tobytes()]
    return labelled_hash("public-state", *parts)


def sum_hash(public_state: bytes, layout_hash: bytes) -> bytes:
    """What a client reveals for once: state and purpose in one hash, and the layout.

    Returns:
        32 bytes; none where no state is named.
    """
    if public_state == NO_STATE:
        return b""
    return labelled_hash("sum", public_state, layout_hash)
