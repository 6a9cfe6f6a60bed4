"""Clients with some of their rules switched off, so that attacks have something to succeed on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    MaskingClient,
    MaskingConfig,
    SitePolicy,
)
from secure_fedrec.protection.masking.client.secrets import Neighbour
from secure_fedrec.protection.masking.client.steps import ClientRound
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages.sum_messages import confirmed_hash
from secure_fedrec.protection.masking.messages.topology import Topology
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.statement import NO_STATEMENT

__all__ = ["switched_off"]

_CLIENT_ROUND = "secure_fedrec.protection.masking.client.steps"
_TOPOLOGY = "secure_fedrec.protection.masking.messages.topology"


@contextmanager
def switched_off(rules: frozenset[str] = frozenset()) -> Iterator[None]:
    """Clients without some of the rules of ``settings.RULES``, in any round the server sets up.

    Rounds as small as these meet no site's bounds, so what a site asks of parameters is off too.
    """
    yes = {"windows": "windows_hold", "survivors": "enough_clients"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SitePolicy, "require", lambda *_: None)
        for rule, name in (yes | {"live neighbours": "enough_neighbours"}).items():
            if rule in rules:
                patch.setattr(f"{_TOPOLOGY}.{name}", lambda *_: True)
        for rule, name in {"sharers": "enough_clients", "quorum": "is_quorum"}.items():
            if rule in rules:
                patch.setattr(f"{_CLIENT_ROUND}.{name}", lambda *_: True)
        if "committee" in rules:
            patch.setattr(Topology, "signers", lambda _, survivors: survivors)
        if "overlap" in rules:
            patch.setattr(MaskingConfig, "_check_counts", lambda _: None)
        if "equal sharers" in rules:
            patch.setattr(ClientRound, "_masked_alike", lambda *_: True)
        if "survivors shared" in rules:
            patch.setattr(ClientRound, "take_survivors", _take_anybody)
        if "one reveal" in rules:
            _forget(patch)
        yield


def _take_anybody(
    self: ClientRound, envelope: Envelope, take: Any = ClientRound.take_survivors
) -> None:
    def confirmed(survivors: BoolArray, _: bytes, root: bytes, seed: bytes) -> bytes:
        return confirmed_hash(survivors, NO_STATEMENT, root, seed)

    self._shared = np.ones_like(self._shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{_CLIENT_ROUND}.confirmed_hash", confirmed)  # whoever shared
        take(self, envelope)


def _forget(patch: pytest.MonkeyPatch) -> None:
    """Clients that answer every unmasking, keep their shares, and remember no answer."""

    def give_share(self: Neighbour, due: str | None) -> bytes | None:
        if self.shares is None or due is None:
            return None
        return self.shares[1 if due == "self" else 0]

    class Forgetful:
        """A journal that counts rounds, and remembers no answer."""

        def __init__(self, kept: Journal) -> None:
            self.begin, self.see = kept.begin, kept.see

        upload = reveal = staticmethod(lambda *_: None)

    original = Federation.open_client

    def open_client(self: Federation, number: int, expected: Expected) -> MaskingClient:
        client = original(self, number, expected)
        client._journal = Forgetful(client._journal)  # type: ignore[assignment]
        return client

    patch.setattr(Neighbour, "give_share", give_share)
    patch.setattr(ClientRound, "wipe", lambda _: None)
    patch.setattr(MaskingClient, "_require_awaited", lambda *_: None)
    patch.setattr(MaskingClient, "_stored_reveal", lambda *_: None)
    patch.setattr(Federation, "open_client", open_client)
    patch.setattr("secure_fedrec.protection.masking.client.half._AFTER", _AnyState())


class _AnyState(dict[Any, Any]):
    """Any state may follow any state."""

    def __missing__(self, key: Any) -> Any:
        return key
