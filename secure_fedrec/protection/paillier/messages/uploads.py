"""Uploads of a cohort, made by clients and added by the server, for any holder of the key."""

from collections.abc import Sequence
from dataclasses import replace

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import EncodingError, ProtocolError
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.scheme.encryption import Encryptor
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.scheme.vectors import (
    RunningSum,
    encrypt_vector,
    split_vectors,
)
from secure_fedrec.protection.session.envelope import Envelope


def require_words(vectors: Sequence[RingArray], layouts: Sequence[SlotLayout]) -> None:
    """Check a client's values before anything is computed from them.

    Values are held to the clip of their codec even where a slot could hold any word: a mask would
    hide a value that makes the sum leave the ring.

    Raises:
        EncodingError: another number of vectors, or words that do not fit.
    """
    if len(vectors) != len(layouts):
        raise EncodingError(f"{len(vectors)} vectors, the plan has {len(layouts)}")
    for words, layout in zip(vectors, layouts, strict=True):
        replace(layout, whole_ring=False).require_words(words)


def encrypt_upload(
    vectors: Sequence[RingArray], layouts: Sequence[SlotLayout], encryptor: Encryptor
) -> bytes:
    """Concatenated encrypted vectors.

    Raises:
        EncodingError: the words do not fit the layouts.
    """
    return b"".join(
        encrypt_vector(words, layout, encryptor).to_bytes()
        for words, layout in zip(vectors, layouts, strict=True)
    )


class UploadSum:
    """The server's running sums of one round.

    Args:
        plan: the agreement.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sums = [RunningSum(key=plan.key, layout=layout) for layout in plan.layouts]
        self.missing = set(plan.clients)
        """Clients that have not answered yet."""

    def add(self, upload: Envelope) -> None:
        """Add one client's vectors.

        Raises:
            WireError: they are not fresh vectors under the plan's key and layouts.
            ProtocolError: the client was heard already.
        """
        if upload.sender.number not in self.missing:
            raise ProtocolError(f"{upload.sender} sent a second upload")
        plan = self._plan
        vectors = split_vectors(upload.body, key=plan.key, layouts=plan.layouts)
        for vector in vectors:
            if vector.terms != 1:
                raise ProtocolError(f"{upload.sender} sent a sum of {vector.terms} vectors")
        for running, vector in zip(self._sums, vectors, strict=True):
            running.add(vector)
        self.missing.remove(upload.sender.number)

    def describe_missing(self) -> str:
        """A clause about the clients that have not answered."""
        if not self.missing:
            return "no upload is missing"
        return f"{len(self.missing)} uploads are missing, the first is client {min(self.missing)}'s"

    def to_bytes(self) -> bytes:
        """Concatenated encrypted sums.

        Raises:
            ProtocolError: a client was not heard.
        """
        if self.missing:
            raise ProtocolError(self.describe_missing())
        return b"".join(running.vector().to_bytes() for running in self._sums)
