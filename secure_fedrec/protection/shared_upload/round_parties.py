"""The common parts of the halves of client, denoiser and server."""

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import SERVER, Node, Parcel
from secure_fedrec.protection.shared_upload.messages import Kind, open_envelope, sign
from secure_fedrec.protection.shared_upload.round_context import RoundContext


class Half:
    """One party in one round, which signs its messages.

    Args:
        context: the round.
        node: role and number of this party.
        identity: its signing key.
        state: its progress; the value completes a sentence after "is". A half that can abort has a
            state "ABORTED".

    Raises:
        ProtocolError: the roster has another key for this party.
    """

    def __init__(
        self, context: RoundContext, node: Node, identity: Ed25519PrivateKey, state: Enum
    ) -> None:
        context.require_key(node, identity)
        self.node = node
        self._context = context
        self._identity = identity
        self._state = state

    def _require(self, state: Enum) -> None:
        if self._state is not state:
            raise ProtocolError(f"{self.node} is {self._state.value}")

    def _abort(self, reason: str) -> NoReturn:
        self._state = type(self._state)["ABORTED"]
        self._forget()
        raise ProtocolError(f"{self.node} aborts round {self._context.round}: {reason}")

    def _forget(self) -> None:
        """Release secrets; Python cannot overwrite their memory."""

    def _open_all(self, messages: Sequence[bytes], kind: Kind) -> list[bytes]:
        """Bodies of one message of every denoiser, by their numbers; they come in any order.

        Raises:
            ProtocolError: a message is missing, repeated, unsigned, or of another round.
            WireError: a malformed message.
        """
        count = self._context.denoisers
        if len(messages) != count:
            raise ProtocolError(f"{len(messages)} {kind.name} messages of {count} denoisers")
        bodies: dict[int, bytes] = {}
        for message in messages:
            signed = open_envelope(message, kind, context=self._context)
            if signed.sender.number in bodies:
                raise ProtocolError(f"two {kind.name} messages of denoiser {signed.sender.number}")
            bodies[signed.sender.number] = signed.body
        return [bodies[number] for number in range(count)]

    def _sign(self, kind: Kind, body: bytes) -> bytes:
        return sign(kind, self.node.number, body, context=self._context, identity=self._identity)

    def _parcel(self, kind: Kind, data: bytes) -> Parcel:
        return Parcel(self.node, SERVER, kind.name, data)
