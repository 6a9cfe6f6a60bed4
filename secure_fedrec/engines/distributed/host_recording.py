"""Recording of what one host saw of a federation, in the form of the embedded engine's recordings.

A folder with ``transcript/`` and ``truth/`` (``wire.recording``). Each host has its own recording
of what it received: the server the clients' messages and its own sums, a denoiser shares, every
site the public state. As truth, a site keeps its upload and its private tables, and the server
keeps the clients in the sum and the traffic. All recordings together are a recorded run, like that
of ``RecordedRun`` for a federation in one process. For a round that was begun several times it
holds the attempt that was summed.

A completed round has a *seal*: the host, the run, and the digests of its files. It is not a
signature; it detects recordings that are incomplete, or mixed from two runs or hosts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.files import file_digest, read_json, replace_file
from secure_fedrec.engines.peer_exchange import parts_of
from secure_fedrec.engines.recorded_run import private_columns
from secure_fedrec.errors import TranscriptError
from secure_fedrec.protection.session import SERVER, Hub, Parcel
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
from secure_fedrec.wire.recording import folder_of

SUMMED = "summed"
"""Kind of the truth block that holds the result of a round."""
LINE = "line"
"""Kind of the truth block of traffic: messages and bytes of every client."""
_SEAL = "seal.json"


class HostStore(BlockStore):
    """Blocks of one host's recording, sealed round by round.

    Args:
        directory: where to write.
        host: the host that they belong to.
        run: identifies the run, the same for all its hosts.
    """

    def __init__(self, directory: Path, host: str, run: str) -> None:
        super().__init__(directory)
        self._folder, self._host, self._run = directory, host, run

    def seal(self, round_: int) -> None:
        """Write the seal of a completed round, and give it its final name."""
        unsealed = folder_of(self._folder, round_, sealed=False)
        unsealed.mkdir(parents=True, exist_ok=True)
        seal = json.dumps(self._seal_of(unsealed, round_), indent=1) + "\n"
        replace_file(unsealed / _SEAL, seal.encode())
        super().seal(round_)

    def require_whole(self) -> None:
        """Check every round against its seal.

        Raises:
            TranscriptError: a file is of another host or run, or differs from what was sealed.
        """
        for round_ in self.rounds():
            folder = folder_of(self._folder, round_, sealed=True)
            try:
                seal, due = read_json(folder / _SEAL), self._seal_of(folder, round_)
            except (OSError, ValueError) as damage:
                raise TranscriptError(f"{folder} has no seal that can be read") from damage
            if seal == due:
                continue
            for key in ("host", "run", "round"):
                if not isinstance(seal, dict) or seal.get(key) != due[key]:
                    raise TranscriptError(f"{folder} is a recording of another {key}")
            raise TranscriptError(
                f"{folder} is not what {self._host} recorded: a file is missing, or another"
            )

    def _seal_of(self, folder: Path, round_: int) -> dict[str, Any]:
        files = {path.name: file_digest(path) for path in sorted(folder.glob("*.npz"))}
        return {"host": self._host, "run": self._run, "round": round_, "files": files}


class HostRecording:
    """The recording of what one host saw.

    Args:
        folder: for its recording; made if it is missing.
        host: name of the host, such as "client 3".
        run: 32 bytes that only the hosts of this run have in common.
        policy: what to keep.
        n_clients: clients of the federation.
        n_items: rows of the shared table.

    Attributes:
        wire: receives what parties at this host show.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str,
        run: bytes,
        policy: RecordingPolicy,
        n_clients: int,
        n_items: int,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.seen = HostStore(folder / "transcript", host, run.hex())
        self.truth = HostStore(folder / "truth", host, run.hex())
        recorder = Recorder(policy=policy, seen=self.seen, truth=self.truth, n_items=n_items)
        self.wire = Wire(meter=Meter(n_clients), recorder=recorder)

    def begin(self, round_: int) -> None:
        """Begin a round, possibly again: earlier records of it and of later rounds are dropped."""
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
        for kind, columns in private_columns(vault):
            self.truth.append(round_, kind, columns)

    def summed(
        self, round_: int, summed: Mapping[str, npt.NDArray[Any]], line: Mapping[str, IntArray]
    ) -> None:
        """Record the clients in the sum, and its cost.

        Args:
            round_: the round.
            summed: ``clients`` in the sum and ``absent`` ones that were invited, int64[k], how many
                ``attempts``, and the ``digest`` of the public state after it.
            line: traffic since the round before, as ``sites_channel.Tally`` has it.
        """
        self.truth.append(round_, SUMMED, dict(summed))
        self.truth.append(round_, LINE, dict(line))

    def end(self, round_: int) -> None:
        """Complete a round."""
        self.wire.end_round(round_)


class OverheardHub(Hub):
    """A hub whose incoming messages are recorded as well.

    Args:
        hub: the hub.

    Attributes:
        arrived: the messages, in order.
    """

    node = SERVER

    def __init__(self, hub: Hub) -> None:
        self.arrived: list[bytes] = []
        self._hub = hub

    @property
    @override
    def stage(self) -> str:
        return self._hub.stage

    @property
    @override
    def finished(self) -> bool:
        return self._hub.finished

    @override
    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        return self._hub.step(self._kept(inbox))

    def _kept(self, inbox: Iterable[bytes]) -> Iterator[bytes]:
        for data in inbox:
            self.arrived.append(data)
            yield data
