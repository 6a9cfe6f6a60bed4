"""What a stack, an audit and a reader of claims assume of a layer."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Comparison, Scope, assert_collected, compare_runs
from secure_fedrec.protection import (
    BAG_RECORDS,
    BAG_STACKS,
    RECORDS,
    STACKS,
    BagShape,
    Claim,
    Layer,
    Sizes,
    Stack,
    build_stack,
)
from secure_fedrec.protection.layers import stacks_with
from secure_fedrec.settings import Settings
from secure_fedrec.streams import Streams
from secure_fedrec.testing.said import require, unsaid
from secure_fedrec.uploads import RowBlock, SetBlock, Upload
from secure_fedrec.wire import Delay, Drop, Fault, Messages, Repeat, Step

_RANK, _BAG = 2, "vectors"
_LOSSY: tuple[type[Drop | Repeat | Delay], ...] = (Drop, Repeat, Delay)
_STRIKES = ((1, "the first"), (2, "the last client's"), (2, "all"))


def require_layer(layer: Any) -> None:
    """Check the record of a layer over rows: its name, a stack with it, and that stack's claim.

    Raises:
        AssertionError: names what is missing or does not fit the known layers.
    """
    require(isinstance(layer, Layer), "is not a Layer")
    require(
        bool(re.fullmatch(r"[\w.-]+", layer.name)),
        "does not have a name of letters, digits and '-'",
    )
    require(issubclass(layer.settings, Settings), "its settings are not Settings")
    try:
        stacks = stacks_with(layer)
    except ConfigError as refused:
        raise AssertionError(f"does not stack: {refused}") from refused
    those = [names for names in stacks if layer.name in names]
    require(bool(those), "is in no stack with what it requires and excludes")
    claim = stacks[min(those, key=len)]
    for text in ("system", "hides", "assumes", "found"):
        require(bool(getattr(claim, text)), f"says nothing of what it {text}")


class LayerContract:
    """A layer in its smallest stack; inherit it and name the layer.

    While its tests run, the layer is among those that configurations name.

    Layers over rows run over matrix factorization on generated ratings, layers over bags bring one
    vector of each client to the server. This class does not test what the layer claims to hide:
    ``attacks.planted.worlds.play`` is the game for that.

    Raises:
        AssertionError: by each test; says which part of the contract is violated.
    """

    layer: ClassVar[Layer] = unsaid()
    """The record, as it stands in the table of layers."""

    rounds: ClassVar[int] = 2
    seed: ClassVar[int] = 5

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers in the smallest stack that it is in.

        Raises:
            AssertionError: the layer is not in any stack.
        """
        those = [names for names in self._stacks if self.layer.name in names]
        require(bool(those), f"{self.layer.name} is in no stack: is its record in the table?")
        return min(those, key=len)

    def settings(self) -> Mapping[str, Any]:
        """Settings by name, of all layers of that stack; by default, defaults."""
        return {name: self._records[name].settings() for name in self.names}

    def ratings(self) -> RatingTable:
        """Ratings to learn from: as many clients and items as the settings need."""
        return generate(SyntheticConfig(clients=12, items=20, mean_ratings=6.0, seed=self.seed))

    def scope(self) -> Scope:
        """Rows that the layer leaves out by its own rules, see ``compare_runs``."""
        return Scope(drops_reports=self._claim.drops_reports)

    def setup_method(self) -> None:
        """Add the layer to the known ones, unless a shipped layer has its name."""
        if self.layer.name not in (*RECORDS.shipped, *BAG_RECORDS):
            RECORDS.add(self.layer.name, self.layer, "of this test")

    def teardown_method(self) -> None:
        """Take it away again."""
        RECORDS.remove(self.layer.name)

    def test_it_stands_in_the_table(self) -> None:
        """Configurations and SECURITY.md read it there."""
        require(self._records[self.layer.name] is self.layer, "another layer has its name")
        if not self._in_bags:
            require_layer(self.layer)
        for text in ("hides", "assumes", "found"):
            require(bool(getattr(self._claim, text)), f"says nothing of what it {text}")

    def test_settings_are_checked_where_they_are_made(self) -> None:
        """An unknown setting, and a setting of an unknown type, are refused by key."""
        require(issubclass(self.layer.settings, Settings), "its settings are not Settings")
        for name in inspect.signature(self.layer.settings).parameters:
            try:
                self.layer.settings(**{name: object()})
            except ConfigError as refused:
                require(name in refused.key, f"refuses {name} under the key {refused.key}")
            else:
                raise AssertionError(f"{name} may be anything")

    def test_public_knowledge_has_its_settings_and_traits(self) -> None:
        """As JSON values: recordings hold it, and adversaries know no more of the layer."""
        told = self._stack().describe()
        text = json.dumps(told)  # raises if it is not JSON
        require(f'"{self.layer.name}"' in text, "is not named in describe()")
        require(told["traits"] is not None, "states no traits")
        stated = _told_of(self.layer.name, json.loads(text))
        own = json.loads(json.dumps(asdict(self.settings()[self.layer.name])))
        # None means that the value is computed.
        given = {key: value for key, value in own.items() if value is not None}
        lies = {key for key, value in given.items() if stated.get(key) != value}
        require(not lies, f"describe() does not say what {sorted(lies)} are")

    def test_it_is_lossless_where_it_says_so(self) -> None:
        """Bit for bit, if it claims so; and its effect on rows is as its traits state.

        In its smallest stack, and in the smallest that claims to be lossless: sums with virtual
        rows in them do not show what else a cloak did.
        """
        for names in dict.fromkeys((self.names, self._exact_names)):
            claimed = self._claims_exact(names)
            found, did = self._lossless(names)
            why = did and did.first_difference
            told = f"{' + '.join(names)} claims {claimed}, found {found}: {why}"
            require(found == claimed, told)
            self._require_stated(names, did)

    def _require_stated(self, names: tuple[str, ...], did: Comparison | None) -> None:
        """Check traits and claim of a stack against what it did to rows."""
        if did is None:
            return
        traits, drops = self._stack(names).describe()["traits"], did.unreported > 0
        for trait, harmless, rows in (
            ("virtual_rows", "none", did.virtual_rows),
            ("reports", "all", did.unreported),
        ):
            lies = bool(rows) and traits.get(trait) in (harmless, None)
            require(not lies, f"states {trait} {traits.get(trait)!r}, and {rows} rows are not so")
        lies = traits.get("reports") == "some" and not drops
        require(not lies, "states that some reports are left out, and all are sent")
        lies = self._stacks[names].drops_reports and not drops
        require(not lies, "claims to be relative to what it reports, but does not drop any rows")

    def test_no_message_goes_amiss_in_silence(self) -> None:
        """With lost, repeated or late messages the round is refused, or all uploads are summed.

        Disturbs the first message of the first round; in the second, the last client's, then all.
        """
        struck = 0
        for step, kind, (round_, which) in product(Step, _LOSSY, _STRIKES):
            strike = _Strike(round_, which, last=self.ratings().n_clients - 1)
            try:
                lossless, _ = self._lossless(self.names, (kind(step=step, chooser=strike),))
            except ProtocolError:
                struck += 1
                continue
            struck += strike.hits
            silent = strike.hits and step not in (Step.MODEL, Step.AGGREGATE)
            wrong = bool(silent) and self._claims_exact(self.names) and not lossless
            where = f"{kind.__name__} of {step.name} in round {round_}, {which}"
            require(not wrong, f"{where}, changes the sum in silence")
        require(struck > 0, "no message was struck")

    @property
    def _in_bags(self) -> bool:
        return self.layer.name in BAG_RECORDS

    @property
    def _records(self) -> Mapping[str, Layer]:
        return BAG_RECORDS if self._in_bags else RECORDS

    @property
    def _stacks(self) -> Mapping[tuple[str, ...], Claim]:
        return BAG_STACKS if self._in_bags else STACKS

    @property
    def _claim(self) -> Claim:
        return self._stacks[self.names]

    @property
    def _exact_names(self) -> tuple[str, ...]:
        """The smallest stack with the layer that claims to be lossless; ``names`` if none does."""
        those = [
            names
            for names, claim in self._stacks.items()
            if self.layer.name in names and claim.lossless
        ]
        return self.names if self._claim.lossless or not those else min(those, key=len)

    def _claims_exact(self, names: tuple[str, ...]) -> bool:
        """The claims of a stack, without those that its options exclude."""
        said, given = [self._stacks[names].lossless], self.settings()
        for name in names:
            used = (each for each in self._records[name].options if name in given)
            said += [each.lossless for each in used if each.used(given[name])]
        return all(said)

    def _stack(self, names: tuple[str, ...] = ()) -> Stack:
        names, table, settings = names or self.names, self.ratings(), self.settings()
        # In the order data passes them; layers without given settings have their defaults.
        layers = {name: settings.get(name) or self._records[name].settings() for name in names}
        sizes = Sizes(
            n_clients=table.n_clients,
            n_items=table.n_items,
            width=_RANK,
            cohort=table.n_clients,
            bags={_BAG: BagShape(width=_RANK, most=1)} if self._in_bags else {},
            popularity=np.bincount(table.items, minlength=table.n_items),
        )
        return build_stack(
            {} if self._in_bags else layers,
            sizes=sizes,
            codec=FixedPoint(),
            streams=Streams.from_seed(self.seed),
            bag_layers=layers if self._in_bags else {},
        )

    def _lossless(
        self, names: tuple[str, ...], faults: tuple[Fault, ...] = ()
    ) -> tuple[bool, Comparison | None]:
        """Whether the server ends with the bits of plain sums, or with the original vectors."""
        drops = self._stacks[names].drops_reports
        if not self._in_bags:
            compared = compare_runs(
                algorithm=lambda: PMF(PMFConfig.printed(rank=_RANK)),
                stack=self._stack(names),
                ratings=self.ratings(),
                streams=Streams.from_seed(self.seed),
                rounds=self.rounds,
                scope=replace(self.scope(), drops_reports=drops),
                faults=faults,
            )
            return compared.holds, compared
        channel: Any = self._stack(names).bags
        try:
            assert_collected(channel=channel, uploads=list(self._uploads()), faults=faults)
        except LosslessnessError:
            return False, None
        return True, None

    def _uploads(self) -> Iterator[Upload]:
        """One vector of every client, in two batches."""
        rng = np.random.default_rng(self.seed)
        for clients in np.array_split(np.arange(self.ratings().n_clients), 2):
            ends = np.arange(len(clients) + 1)
            vectors = rng.uniform(-1.0, 1.0, (len(clients), _RANK))
            none = RowBlock(
                indptr=np.zeros_like(ends), rows=np.empty(0, np.int32), values=vectors[:0]
            )
            bags = {_BAG: SetBlock(indptr=ends, values=vectors)}
            yield Upload(clients=clients, blocks={TABLE: none}, bags=bags)


def _told_of(name: str, told: Any) -> Mapping[str, Any]:
    """The entries of a description about a layer, at any depth; empty without any."""
    inside = told.values() if isinstance(told, dict) else ()
    found = told.get(name) if isinstance(told, dict) else None
    if isinstance(found, dict):
        return found
    return next(filter(None, (_told_of(name, each) for each in inside)), {})


@dataclass
class _Strike:
    """Chooses a round's first message, its last client's, or all."""

    round: int
    which: str
    last: int
    hits: int = 0

    def __call__(self, messages: Messages) -> BoolArray:
        struck = np.full(len(messages), messages.round == self.round)
        if self.which == "the first":
            struck[1 if not self.hits else 0 :] = False
        elif self.which == "the last client's":
            struck &= messages.senders.ids == self.last
        self.hits += int(struck.sum())
        return struck
