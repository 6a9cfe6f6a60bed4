"""The input of every host's training plan: configuration, and public facts of the data."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.config.audit import AuditConfig, parse_config
from audits.plugins import same_training
from audits.run.build import Federation, stack_of
from audits.system import Apart, Task
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.files import read_json, replace_file
from secure_fedrec.data.refusals import refused
from secure_fedrec.engines import sizes_of
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import BagShape, Sizes
from secure_fedrec.streams import Streams

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blueprint:
    """What hosts agree on; public to all of them.

    Args:
        config: the resolved configuration, as JSON values.
        facts: what the algorithm needs to know about the data, as JSON values.
        sizes: sizes of the federation and of an upload.
        n_rows: rows of the shared table.
    """

    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    sizes: Sizes
    n_rows: int

    @classmethod
    def of(cls, federation: Federation[Task]) -> "Blueprint":
        """Make the blueprint of a federation whose data are available.

        Raises:
            ConfigError: its algorithm cannot be made without all of the data.
        """
        config = federation.config
        task = federation.task
        if config.audited.device is None or not isinstance(task, Apart):
            why = "runs in the embedded engine only: it needs the data of all clients"
            raise ConfigError("algorithm.name", config.system, why)
        algorithm, problem, bags = federation.fresh()
        n_clients = problem.vault.n_clients
        sizes = sizes_of(algorithm, problem, cohort=config.cohort.largest(n_clients), bags=bags)
        facts = json.loads(json.dumps(dict(task.public())))
        return cls(config=config.as_json(), facts=facts, sizes=sizes, n_rows=problem.n_rows)

    @property
    def digest(self) -> bytes:
        """32 bytes that are equal on hosts with equal computations."""
        return sha256(json.dumps(self._plain(), sort_keys=True).encode()).digest()

    @property
    def settings(self) -> AuditConfig:
        """The configuration.

        Raises:
            ConfigError: a setting is wrong, or a plug-in differs from the blueprint's.
        """
        found = parse_config(self.config)
        if (changed := same_training(self.config, found.plugins)) is not None:
            raise ConfigError("plugins", None, changed)
        return found

    def save(self, path: Path) -> None:
        """Write the file.

        Raises:
            OSError: it cannot be written.
        """
        replace_file(path, json.dumps(self._plain(), indent=1, sort_keys=True).encode())

    @classmethod
    def load(cls, path: Path) -> "Blueprint":
        """Read a file of ``save``.

        Raises:
            DataError: it is missing, or not such a file.
        """
        damage = (OSError, ValueError, KeyError, TypeError)
        with refused(path, "is not a blueprint of a deployment: {}", *damage):
            found = read_json(path)
            if found["version"] != _VERSION:
                raise ValueError("another version")
            return cls(
                config=found["config"],
                facts=found["facts"],
                sizes=_sizes(found["sizes"]),
                n_rows=int(found["n_rows"]),
            )

    def plan(
        self,
        secrets: Mapping[int, bytes] | None = None,
        own: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> TrainingPlan:
        """What a host computes.

        Args:
            secrets: 32 secret bytes of a client's host, by client number, from which its own draws
                follow (``Streams.of_clients``); None on hosts that do not draw anything.
            own: what a client's host was given in addition to its examples.

        Raises:
            ConfigError: a setting does not fit.
        """
        config = self.settings
        streams = Streams.from_seed(config.seed).of_clients(secrets or {})
        make = config.audited.device
        if make is None:
            raise ConfigError("algorithm.name", config.system, "cannot be made on a host")
        stack = stack_of(config, self.sizes, streams)
        algorithm = make(config.algorithm, self.facts, {} if own is None else own)
        return TrainingPlan(
            algorithm=algorithm,
            stack=stack,
            streams=streams,
            cohort=config.cohort,
            n_rows=self.n_rows,
        )

    def _plain(self) -> dict[str, Any]:
        sizes = asdict(replace(self.sizes, popularity=None, bags=dict(self.sizes.bags)))
        popularity = self.sizes.popularity
        sizes["popularity"] = None if popularity is None else popularity.tolist()
        for block in sizes["blocks"]:
            block["kind"] = block["kind"].value
        return {
            "version": _VERSION,
            "config": dict(self.config),
            "facts": dict(self.facts),
            "sizes": sizes,
            "n_rows": self.n_rows,
        }


def _sizes(plain: Mapping[str, Any]) -> Sizes:
    popularity = plain["popularity"]
    return Sizes(
        n_clients=plain["n_clients"],
        n_items=plain["n_items"],
        width=plain["width"],
        cohort=plain["cohort"],
        popularity=None if popularity is None else np.array(popularity, dtype=np.int64),
        bags={name: BagShape(**shape) for name, shape in plain["bags"].items()},
        blocks=tuple(
            BlockShape(**{**block, "kind": BlockKind(block["kind"])}) for block in plain["blocks"]
        ),
    )
