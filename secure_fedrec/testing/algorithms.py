"""What an engine assumes of an algorithm, under any protection."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, ClientStep, PublicState
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import Problem, blocks_of, sizes_of, upload_rows
from secure_fedrec.engines.local_engine import require_arrays
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BagShape, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.testing.said import require
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import FlatBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

_Parts = dict[tuple[str, int], bytes]
"""Everything that belongs to one client, by kind and client."""


def require_traits(algorithm: Algorithm) -> None:
    """All traits of its rows, with known values.

    Raises:
        AssertionError: a trait is unstated or unknown.
    """
    stated = algorithm.public_knowledge().get("traits")
    require(isinstance(stated, Mapping), "public_knowledge() states no traits")
    try:
        RowTraits(**dict(stated or {}))
    except (ConfigError, TypeError) as refused:
        raise AssertionError(f"public_knowledge() states no such traits: {refused}") from refused


class AlgorithmContract:
    """Clients, state and sums of an algorithm; inherit it and name the algorithm.

    Every test starts from new objects and round 1.

    Raises:
        AssertionError: by each test; says which part of the contract is violated and where.
    """

    seed: ClassVar[int] = 11
    """Seed of the random streams."""

    def algorithm(self) -> Algorithm:
        """The algorithm, new."""
        raise NotImplementedError("AlgorithmContract: say which `algorithm()` is tested")

    def problem(self) -> Problem:
        """A new problem to learn from: at least three clients, each with examples."""
        raise NotImplementedError("AlgorithmContract: say which `problem()` it learns")

    def bags(self) -> Mapping[str, BagShape]:
        """Sizes of the bags that it gives to, by name."""
        return {}

    def test_traits_are_stated(self) -> None:
        """Attacks cannot use an unstated trait, so they could not be judged."""
        require_traits(self.algorithm())

    def test_a_client_alone_is_the_client_among_all(self) -> None:
        """The same state and upload, and the same state after it, whichever clients share a batch.

        Two rounds give the same with new objects as with used ones: lasting state must be in the
        vault and the public state, or a run cannot be continued elsewhere.
        """
        clients = self.problem().vault.clients
        one, _, _ = self._started(self.problem().vault)
        _, second = self._summed([clients])
        among = self._trained(clients, second, one)
        for company, by in ((clients[-1:], None), (clients[[0, -1]], one)):
            alone = self._trained(company, second, by)
            for when, ours in alone.items():
                theirs = {key: part for key, part in among[when].items() if key[1] in company}
                _require_same(ours, theirs, when)

    def test_a_step_leaves_public_state_and_vault_alone(self) -> None:
        """Only ``commit`` writes, and only state of its own clients."""
        algorithm, vault, public = self._started(self.problem().vault)
        before, given = _state(vault), deepcopy(public)
        some = vault.clients[::2]
        step = algorithm.client_step(some, public, vault, self._streams)
        _ = step.upload
        _require_same(_state(vault), before, "before commit")
        step.commit(vault)
        after = {key: part for key, part in _state(vault).items() if key[1] not in some}
        others = {key: part for key, part in before.items() if key[1] not in some}
        _require_same(after, others, "after others' commit")
        require(_is_same(public, given), "a client's step changes the public state")

    def test_uploads_are_as_foretold(self) -> None:
        """Blocks have the names, rows and widths that the algorithm stated."""
        problem, algorithm = self.problem(), self.algorithm()
        shapes = {shape.name: shape for shape in blocks_of(algorithm, problem)}
        algorithm.initialise(problem.vault, self._streams)
        foretold = upload_rows(algorithm, problem.vault, problem.n_rows)
        public = algorithm.initial_public(problem.n_rows, self._streams)
        clients = problem.vault.clients
        upload = algorithm.client_step(clients, public, problem.vault, self._streams).upload
        require(set(upload.blocks) == set(shapes), f"sends {set(upload.blocks)}, not {set(shapes)}")
        require(set(upload.bags) == set(self.bags()), f"gives to the bags {set(upload.bags)}")
        _given(upload, problem.vault)  # is finite
        rows = np.zeros(len(clients), dtype=np.int64)
        for name, block in upload.blocks.items():
            rows += _rows_of(block, shapes[name])
        require(bool(np.all(rows <= foretold)), f"sends {rows} rows, {foretold} were foretold")

    def test_rows_are_as_the_traits_say(self) -> None:
        """Rows that should be of rated items by the traits, or include them, are so."""
        problem = self.problem()
        stated = self.algorithm().public_knowledge()["traits"]
        if stated["rows"] != "items" or stated["row_sets"] == "others":
            return
        clients = problem.vault.clients
        rated = problem.vault.rated(clients)
        step = self._step(problem.vault)
        (items,) = (
            block for block in step.upload.blocks.values() if not isinstance(block, FlatBlock)
        )
        for place, own in enumerate(items.split()):
            theirs = rated.items[rated.indptr[place] : rated.indptr[place + 1]]
            there, theirs_there = np.isin(own.rows, theirs).all(), np.isin(theirs, own.rows).all()
            fits = there if stated["row_sets"] != "drawn" else theirs_there
            fits &= stated["row_sets"] != "rated" or theirs_there
            require(bool(fits), f"client {clients[place]} sends rows of {own.rows}, rated {theirs}")

    def test_what_several_processes_send_is_one_sum(self) -> None:
        """Sums, and the public state after them, do not tell which process had which clients."""
        one, after = self._summed([self.problem().vault.clients])
        several, again = self._summed(np.array_split(self.problem().vault.clients, 3))
        require(np.array_equal(one.ring, several.ring), "sums depend on the batches")
        require(np.array_equal(one.counts, several.counts), "counts depend on the batches")
        require(_is_same(after, again), "the server's step is another's")
        require(after.round == 1, f"the server's step leads from round 0 to round {after.round}")

    def test_arrays_of_a_public_state_keep_their_shapes(self) -> None:
        """Arrays keep their shapes, unless the algorithm names them as varying."""
        algorithm, problem = self.algorithm(), self.problem()
        _, after = self._summed([problem.vault.clients])
        try:
            start = algorithm.initial_public(problem.n_rows, self._streams)
            require_arrays(algorithm, start, after)
        except ProtocolError as other:
            require(False, str(other))

    def test_the_servers_step_keeps_nothing_to_itself(self) -> None:
        """A new object gives the same as a used one: a run continues from its public state only."""
        aggregate, second = self._summed([self.problem().vault.clients])
        used, _, first = self._started(self.problem().vault)
        new, _, _ = self._started(self.problem().vault)
        used.server_step(first, aggregate)
        same = _is_same(used.server_step(second, aggregate), new.server_step(second, aggregate))
        require(
            same, "the server's second step depends on state that the object kept from the first"
        )

    @property
    def _streams(self) -> Streams:
        return Streams.from_seed(self.seed)

    def _started(self, vault: Vault) -> tuple[Algorithm, Vault, PublicState]:
        algorithm = self.algorithm()
        public = algorithm.initial_public(self.problem().n_rows, self._streams)
        algorithm.initialise(vault, self._streams)
        return algorithm, vault, public

    def _step(self, vault: Vault) -> ClientStep:
        algorithm, vault, public = self._started(vault)
        return algorithm.client_step(vault.clients, public, vault, self._streams)

    def _trained(
        self, clients: IntArray, second: PublicState, by: Algorithm | None
    ) -> dict[str, _Parts]:
        """State and upload of these clients, by round; ``by`` None uses a new object each round."""
        vault, found = _of(self.problem().vault, clients), {}
        for round_ in (1, 2):
            fresh = vault if round_ == 1 else _of(self.problem().vault, clients)
            algorithm, _, public = self._started(fresh)
            found[f"before step {round_}"] = _state(vault)
            given = public if round_ == 1 else second
            step = (by or algorithm).client_step(clients, given, vault, self._streams)
            found[f"in upload {round_}"] = _given(step.upload, vault)
            _require_same(_given(step.upload, vault), found[f"in upload {round_}"], "read again")
            step.commit(vault)
            found[f"after step {round_}"] = _state(vault)
        return found

    def _summed(self, groups: list[IntArray]) -> tuple[Any, PublicState]:
        algorithm, problem = self.algorithm(), self.problem()
        sizes = sizes_of(algorithm, problem, bags=self.bags())
        stack = build_stack({}, sizes=sizes, codec=FixedPoint(), streams=self._streams)
        wire = Wire(meter=Meter(problem.vault.n_clients))
        session = stack.open(round_=1, participants=problem.vault.clients, wire=wire)
        public = algorithm.initial_public(problem.n_rows, self._streams)
        for clients in groups:
            session.submit(self._step(_of(problem.vault, clients)))
        aggregate = session.close()
        once, twice = (algorithm.server_step(public, aggregate) for _ in range(2))
        require(_is_same(once, twice), "the server's step is not a function")
        return aggregate, once


def _of(vault: Vault, clients: IntArray) -> Vault:
    """The vaults of these clients alone."""
    held = [vault.examples(client) for client in clients.tolist()]
    counts = [len(next(iter(examples.values()))) for examples in held]
    columns = {name: np.concatenate([each[name] for each in held]) for name in held[0]}
    return Vault.of_examples(np.cumsum([0, *counts]), columns, clients)


def _is_same(public: PublicState, other: PublicState) -> bool:
    """Whether two public states hold the same bits."""
    return (
        public.round == other.round
        and np.array_equal(public.table, other.table)
        and public.extras.keys() == other.extras.keys()
        and all(np.array_equal(held, other.extras[name]) for name, held in public.extras.items())
    )


def _state(vault: Vault) -> _Parts:
    """Everything that a vault keeps."""
    found: _Parts = {}
    for name in vault.names():
        found |= _by_client(name, vault, vault.read(name, vault.clients))
    for name in vault.ragged_names():
        parts = (vault.read_ragged(name, client) for client in vault.clients.tolist())
        found |= _by_client(name, vault, parts)
    return found


def _given(upload: Upload, vault: Vault) -> _Parts:
    """Everything that an upload holds."""
    found: _Parts = {}
    for name, part in (*upload.blocks.items(), *upload.bags.items()):
        ends = np.arange(len(part) + 1) if isinstance(part, FlatBlock) else part.indptr
        for what in ("values", "rows"):
            column = getattr(part, what, None)
            if column is not None:
                require(bool(np.isfinite(column).all()), f"{what} of {name} are not finite")
                segments = np.split(column, ends[1:-1])
                found |= _by_client(f"{what} of {name}", vault, segments)
    return found


def _by_client(name: str, vault: Vault, parts: Iterable[Any]) -> _Parts:
    numbers = vault.clients.tolist()
    return {(name, c): part.tobytes() for c, part in zip(numbers, parts, strict=True)}


def _rows_of(block: Any, shape: BlockShape) -> IntArray:
    """int64[B], rows of each client in the table that is summed.

    Raises:
        AssertionError: the block does not have the shape.
    """
    flat = shape.kind is BlockKind.FLAT
    require(isinstance(block, FlatBlock) == flat, f"block {shape.name} is not a {shape.kind.value}")
    width = shape.size if flat else shape.width
    require(block.values.shape[1] == width, f"block {shape.name} is {block.values.shape[1]} wide")
    if flat:
        return np.full(len(block), -(-shape.size // shape.width))
    inside = len(block.rows) == 0 or 0 <= block.rows.min() <= block.rows.max() < shape.size
    require(bool(inside), f"block {shape.name} has rows outside of its {shape.size}")
    lengths: IntArray = block.lengths
    return lengths


def _require_same(ours: _Parts, theirs: _Parts, when: str) -> None:
    require(ours.keys() == theirs.keys(), f"other parts {when}: {set(ours) ^ set(theirs)}")
    for (name, client), part in ours.items():
        require(part == theirs[name, client], f"{name} of client {client} differs {when}")
