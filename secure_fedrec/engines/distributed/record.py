"""What one host saw of a federation, in the form of the embedded engine's recordings.

A folder with ``transcript/`` and ``truth/`` (``wire.recording``). Each host has its own, and takes
down what it was sent: the server clients' messages and its own sums, a denoiser shares, every site
the public state. Of what is nobody else's, a site keeps its upload and its private tables, and the
server who is in the sum and what went over the line. All of it put together is a recorded run, as
``RecordedRun`` makes it of a federation in one process. Of a round that was begun several times it
is the attempt that was summed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.exchange import parts_of
from secure_fedrec.vault import Vault
from secure_fedrec.wire import (
    BlockStore,
    Messages,
    Meter,
    Parties,
    Recorder,
    RecordingPolicy,
    Step,
    Wire,
)

SUMMED = "summed"
"""Kind of the truth of what a round came to."""
LINE = "line"
"""Kind of the truth of what went over the line: messages and bytes of every client."""


class Record:
    """What one host saw.

    Args:
        folder: for its recording; made if it is missing.
        policy: what to keep.
        n_clients: clients of the federation.
        n_items: rows of the shared table.

    Attributes:
        wire: what parties at this host show goes through it.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(
        self, folder: Path, *, policy: RecordingPolicy, n_clients: int, n_items: int
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.seen, self.truth = BlockStore(folder / "transcript"), BlockStore(folder / "truth")
        recorder = Recorder(policy=policy, seen=self.seen, truth=self.truth, n_items=n_items)
        self.wire = Wire(meter=Meter(n_clients), recorder=recorder)

    def begin(self, round_: int) -> None:
        """Begin a round, or begin it again: what was recorded of it and later ones is dropped."""
        self.wire.abandon_round(round_)

    def model(self, round_: int, algorithm: Algorithm, public: PublicState) -> None:
        """The public state that a round begins with."""
        whole, _ = parts_of(algorithm, public)
        sent = Messages(
            round=round_,
            step=Step.MODEL,
            senders=Parties.server(1),
            receivers=Parties.anonymous("client", 1),
            payload=whole,
            sizes=np.zeros(1, dtype=np.int64),
        )
        self.wire.show(sent)

    def result(self, round_: int, algorithm: Algorithm, public: PublicState) -> None:
        """The public state that a round led to."""
        whole, _ = parts_of(algorithm, public)
        self.wire.note_result(round_, whole)

    def private(self, round_: int, vault: Vault) -> None:
        """The private tables that a round begins with."""
        for name, values in vault.tables().items():
            columns: dict[str, npt.NDArray[Any]] = {"values": values}
            if name in vault.ragged_names():
                columns["lengths"] = vault.lengths(name)
            self.truth.append(round_, f"private-{name}", columns)

    def summed(
        self, round_: int, summed: Mapping[str, npt.NDArray[Any]], line: Mapping[str, IntArray]
    ) -> None:
        """Who is in the sum, and what it took.

        Args:
            round_: the round.
            summed: ``clients`` in the sum and ``absent`` ones that were invited, int64[k], how many
                ``attempts``, and the ``digest`` of the public state after it.
            line: what went over the line since the round before, as ``channel.Tally`` has it.
        """
        self.truth.append(round_, SUMMED, dict(summed))
        self.truth.append(round_, LINE, dict(line))

    def end(self, round_: int) -> None:
        """Complete a round."""
        self.wire.end_round(round_)
