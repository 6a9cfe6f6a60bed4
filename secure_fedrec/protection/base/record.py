"""The record of a layer, kept beside its code: a ``Layer``.

From the records of all layers follow which of them stack and what each stack claims
(``compatibility``), how a stack is built (``stacking``), what adversaries know of it (its traits),
which coalitions its claim is played against, and what reports say of its cost and execution.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.events import Event
from secure_fedrec.protection.base.hosting import Hosting
from secure_fedrec.protection.base.layer_interfaces import BagShape
from secure_fedrec.settings import Settings
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits

Role: TypeAlias = Literal["cloak", "clip", "noise", "collector", "channel"]

ROLES: tuple[Role, ...] = get_args(Role)
"""Roles of layers, in the order in which data passes them; a stack has at most one layer of each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Words about an algorithm, for claims.

    Args:
        name: name of the algorithm.
        of: the summed part of it, as " with attribute vectors"; empty where all of it is summed.
        things: what is uploaded, in the plural.
        uploads: everything that a client sends into the sum.
        sums: what the server learns of sums.
        clients: what clients are called.
        few: what sums over few clients tell.
        beside: what is sent beside the sums, and so is not hidden with them.
        bears_noise: whether its server can use sums with noise.
    """

    name: str
    of: str = ""
    things: str = "uploads"
    uploads: str
    sums: str
    clients: str = "clients"
    few: str
    beside: str = ""
    bears_noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a stack promises.

    Args:
        system: the published system it amounts to: over PMF, or in a bag over HPFL.
        hides: what it is meant to hide, and from whom.
        assumes: under which assumptions.
        lossless: whether the public table (of a bag: the bag) equals the plain twin's, bit for bit.
        drops_reports: whether its cloak leaves rows of rated items out: it is lossless relative to
            what it reports, at most.
        found: what the attack suite shows, in one sentence.
    """

    system: str
    hides: str
    assumes: str
    lossless: bool
    found: str
    drops_reports: bool = False

    def of(self, subject: Subject) -> "Claim":
        """The claim about an algorithm, from a claim whose texts name fields of a ``Subject``."""
        words = {each.name: getattr(subject, each.name) for each in fields(subject)}
        texts = {name: getattr(self, name).format(**words) for name in ("system", "hides", "found")}
        return replace(self, **texts)


class Stand(Settings, section="layer.stands"):
    """A coalition that a layer withstands: a game, see ``attacks.generic``.

    The built layer states how many clients may join it (``Withstood``).

    Args:
        corrupt: its parties, as an ``Adversary`` names them.
        hides: what it cannot tell apart: the "values" of two clients that send the same rows and
            swap them; the "owners" of two whole uploads; a client's whole "contribution" and
            another one in its place, up to the price of the noise, if there is noise.

    Raises:
        ConfigError: the game is unknown.
    """

    corrupt: tuple[str, ...]
    hides: Literal["values", "owners", "contribution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting that raises the number of clients in a sum, and does not hide any of them.

    Args:
        setting: its name: the fewest clients.
        raises: what is to be hidden (``STOPS``) from attacks that the setting can put out of reach.
        costs: what is paid for it, in a clause.
        lossless: whether sums are still those of the plain twin, bit for bit.
    """

    setting: str
    raises: Literal["lone rows"]
    costs: str
    lossless: bool

    def used(self, layer: Settings) -> bool:
        """Whether settings of the layer use the option, i.e. differ from its default."""
        defaults = {each.name: each.default for each in fields(layer)}
        return bool(getattr(layer, self.setting) != defaults[self.setting])


STOPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "values": frozenset({"values", "owners", "contribution"}),
        "owners": frozenset({"owners", "contribution"}),
        "lone rows": frozenset({"contribution"}),
        "contribution": frozenset({"contribution"}),
        "presence": frozenset(),
    }
)
"""The facts that can be hidden; hiding one withstands attacks on it.

Whether a client took part is hidden by noise up to its epsilon, not completely.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes for which a stack is built.

    Args:
        n_clients: clients of the federation.
        n_items: rows of the shared table.
        width: values per row.
        cohort: most clients in a round.
        bags: sizes of the bags that uploads give to, by name.
        popularity: int64[n_items], public number of clients that rated each item; None where rows
            are not items.
        blocks: named blocks of an upload, which lie in that table; none is one block of rows.
    """

    n_clients: int
    n_items: int
    width: int
    cohort: int
    bags: Mapping[str, BagShape] = field(default_factory=dict)
    popularity: IntArray | None = field(default=None, compare=False)
    blocks: tuple[BlockShape, ...] = ()

    @property
    def covered(self) -> int:
        """Items that a cloak may draw from."""
        of_items = [shape.size for shape in self.blocks if shape.kind is BlockKind.ITEMS]
        return of_items[0] if of_items else self.n_items


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """The context in which a layer is built.

    Args:
        layers: settings of the whole stack by layer name.
        sizes: sizes of the federation.
        codec: the ring.
        streams: the run's random streams.
    """

    layers: Mapping[str, Any]
    sizes: Sizes
    codec: FixedPoint
    streams: Streams

    @property
    def table(self) -> dict[str, Any]:
        """Arguments of every collector beside its settings."""
        names = ("n_clients", "n_items", "width")
        sizes = {name: getattr(self.sizes, name) for name in names}
        return {**sizes, "codec": self.codec, "streams": self.streams}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Budget:
    """An epsilon against the server, from which a layer's noise is computed.

    Args:
        epsilon: over all rounds of a run.
        delta: its delta.
        part: the part of what clients send that it pays for, see ``Released``.
        keys: key of a configuration by key of the package ``dp``.
        events: what is released with a noise multiplier over ``rounds`` rounds.
        settings: the layer's settings with a noise multiplier.
    """

    epsilon: float
    delta: float
    part: str
    keys: Mapping[str, str]
    events: Callable[..., Sequence[Event]]
    settings: Callable[[float], Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One protection.

    Args:
        name: in configurations.
        role: its role; a stack has at most one layer of each role.
        settings: class of its settings.
        build: makes its part of a stack, a cloak or a collector, of its settings; None where a
            layer that requires it makes both.
        traits: how it leaves uploads and sums. The built part states the same, with further
            details.
        claim: of the smallest stack that it is in; None where a layer that it requires states it.
        published: claims of larger stacks that end with it and have a name of their own.
        elsewhere: its claim over algorithms other than matrix factorization, with the fields of a
            ``Subject`` in its texts; None where it needs rows of rated items.
        requires: layers without which it does not stack.
        excludes: layers and roles that it does not stack with.
        stands: which coalitions it withstands; empty for a layer without a claim.
        options: settings that raise how many clients stand behind what those learn.
        hosted: halves of the collector that it builds, one at a time, for hosts that have one of
            them; None where its parties cannot be elsewhere.
        start: settings to start from in a federation, where defaults do not fit.
        costs: what clients pay for it beside bytes, in a clause.
        bears: settings of an algorithm, of one that has them all, under which training bears it.
        fits: refuses what cannot be checked before layers and federation are known together.
        budget: the budget that its noise is to be found from, None where it has its noise.
        simulated: what stood in for its cryptography where none was carried out.
        real: what carrying it out amounted to, beyond the protocol itself.
        uncounted: messages that no meter counts, in a sentence.
        also_called: its other names, in small letters, words separated by spaces.

    Raises:
        ConfigError: a role, trait or claim is missing or unknown, or its settings check nothing.
    """

    name: str
    role: Role
    settings: type
    build: Callable[[Any, Place], Any] | None
    traits: Traits
    claim: Claim | None
    published: Mapping[tuple[str, ...], Claim] = field(default_factory=dict)
    elsewhere: Claim | None = None
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    stands: tuple[Stand, ...] = ()
    options: tuple[Option, ...] = ()
    hosted: Callable[[Any], Hosting] | None = None
    start: Callable[[Sizes], Mapping[str, Any]] = lambda _: {}
    costs: str = ""
    bears: Mapping[str, Any] = field(default_factory=dict)
    fits: Callable[[Place], None] = lambda _: None
    budget: Callable[[Mapping[str, Any], Sizes], Budget | None] = lambda *_: None
    simulated: str = ""
    real: Callable[[Any], str] = lambda _: ""
    uncounted: str = ""
    also_called: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigError(f"layer {self.name}: role", self.role, "is unknown", ROLES)
        if type(self.traits) is not Traits:
            raise ConfigError(f"layer {self.name}: traits", self.traits, "must be stated")
        if not issubclass(self.settings, Settings):
            raise ConfigError(f"layer {self.name}: settings", self.settings, "are not Settings")
        if self.claim is None and not self.requires:
            raise ConfigError(f"layer {self.name}: claim", None, "must be stated")
