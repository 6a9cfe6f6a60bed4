"""Clients of a loop of one's own, in one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedrec.engines.distributed import BEGIN, Keys, MeanSite, Task
from secure_fedrec.errors import FedRecError
from secure_fedrec.protection.means import ProtectedMean, Update

MODEL = {"w": np.zeros(3), "steps": np.array(0)}


@dataclass
class Sites:
    """Hosts that live for one message each (``engines.distributed.Transport``).

    Attributes:
        models: what each is sent.
        refused: what sites have raised, by client.
        trained: clients that have computed.
        labels: of all exchanges.
        after: called with a label once all have answered.
    """

    keys: Path
    terms: ProtectedMean
    models: dict[int, dict[str, np.ndarray]]
    refused: dict[int, FedRecError] = field(default_factory=dict)
    trained: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    after: Callable[[str], None] = lambda label: None

    def addresses(self) -> Sequence[int]:
        return list(self.models)

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        del timeout
        self.labels.append(label)
        for client, data in messages.items():
            task = task_of(self.models[client], self.computing(client))
            with MeanSite(self.terms, Keys(self.keys / str(client))) as site:
                try:
                    yield client, site.answer(data, task if label == BEGIN else None)
                except FedRecError as refused:
                    self.refused[client] = refused
        self.after(label)

    def computing(self, client: int) -> Callable[[], Update]:
        def compute() -> Update:
            self.trained.append(client)
            return Update(arrays={"w": np.full(3, float(client)), "steps": np.array(10**9)})

        return compute


def task_of(model: Mapping[str, np.ndarray], compute: Any = None) -> Task:
    told = sha256(model["steps"].tobytes()).digest()
    return Task(digest=told, model=model, compute=compute)
