"""Means of arrays under masks, for any training loop: the terms that all parties fix first.

A training loop has arrays (the change of a client's model), weights, and a server that wants their
mean. ``MaskedMean`` and ``NoisedMean`` say which arrays are shared and how their mean is hidden, in
one settings object that is equal on every host. What a round's halves of ``masking`` must agree on
follows from it, from the arrays that are shared and from what ``hosting.Standing`` says of the
attempt. How the halves' messages are carried does not matter here:
``engines.distributed.mean_site`` is one half's host.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from math import frexp, ldexp, prod
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    MisfitError,
    SitsOutError,
    SumBudgetError,
    renamed_keys,
)
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.hosting import Standing, rotation_seed
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    Event,
    Part,
    SkellamClient,
    SkellamConfig,
    SkellamServer,
)
from secure_fedrec.protection.masking import (
    EncodedVector,
    MaskingConfig,
    MeanLayout,
    Roster,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.parameters import COMPLETE_UP_TO
from secure_fedrec.protection.means.arrays import Arrays, SharedArrays, require_matches, select
from secure_fedrec.protection.session import Role
from secure_fedrec.settings import Bits, Count, Filled, OneOf, Positive, Settings, Share, Within

_LARGEST: Final = 2.0**100
"""Largest clip, and by its inverse the smallest: products of two stay finite floats."""
_LABEL = b"secure-fedrec|v1|mean|"
_NO_ROUND = sha256(_LABEL).digest()
"""Used in place of a statement's digest when settings are tried without a round."""
_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "ring": "protection",
        "dp": "protection",
        "dp.ring": "protection.ring",
        "layout": "protection",
        "masking": "protection",
        "masking.clients": "roster.clients",
        "policy": "protection",
    }
)
"""Keys that a user wrote, by the keys that errors of packages name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Update:
    """One client's upload.

    Args:
        arrays: change of each array of the model, in the model's shapes; arrays that are not shared
            are ignored.
        weight: how much it counts, such as its number of examples; from 1.
        metrics: figures that are averaged with it, by name.
    """

    arrays: Arrays
    weight: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mean:
    """The mean, which is what the server learns.

    Args:
        arrays: the weighted mean of each array that is shared, float64, by name.
        weight: sum of the weights in it.
        metrics: weighted means, by name.
    """

    arrays: Mapping[str, FloatArray]
    weight: int
    metrics: Mapping[str, float]


class _UnderMasks(Settings, section="protection"):
    """Common settings of both ways.

    Args:
        adversary: the server that is withstood: "active" deviates from the protocol, and all
            clients on the roster are in the cohort; "curious" follows it, and chooses the cohort.
        corrupt: largest fraction of clients that may work with the server.
        dropout: largest fraction of clients that a round can lose.
        min_survivors: fewest clients in a sum.
        keeps_state: whether an app may train from what it has kept since earlier rounds, against an
            active server, which may then change what one client keeps and so read its update.
            Against
            a curious one it always may.
        beacon: rounds of more than 128 clients against an active server mask on a sparse graph,
            which public randomness draws: that of the roster's "operator", who signs one value a
            round (``session.beacon``). With "none" they are refused.
        shared: patterns of names of arrays that are shared (``means.arrays``); by default all
            floats but BatchNorm's statistics.
        private: patterns of those that stay home all the same.

    Raises:
        ConfigError: a field is out of range.
    """

    adversary: Adversary = "active"
    corrupt: Share = 0.1
    dropout: Share = 0.1
    min_survivors: Annotated[int, Within(least=2)] = 3
    keeps_state: bool = False
    beacon: Annotated[str, OneOf(("none", "operator"))] = "none"
    shared: Annotated[tuple[str, ...], Filled()] = ("*",)
    private: tuple[str, ...] = ()

    def _agree(self) -> None:
        if self.beacon != "none" and self.adversary != "active":
            raise self.refusal("beacon", "has no effect against a curious server")

    def select(self, model: Arrays) -> SharedArrays:
        """Which arrays of a model are shared.

        Args:
            model: all its arrays, by name.

        Raises:
            ConfigError: a pattern matches no array or one that cannot be shared, or no array is
                left to share; the message lists the names.
            EncodingError: a value of an array that is shared is not finite.
        """
        return select(model, shared=self.shared, private=self.private)

    @property
    def digest(self) -> bytes:
        """32 bytes, hash of all settings."""
        settled = json.dumps({type(self).__name__: asdict(self)}, sort_keys=True)
        return sha256(_LABEL + settled.encode()).digest()

    @property
    def policy(self) -> SitePolicy:
        """What every client insists on."""
        return SitePolicy(
            adversary=self.adversary,
            corrupt=self.corrupt,
            dropout=self.dropout,
            min_survivors=self.min_survivors,
            cohort="roster" if self.adversary == "active" else "server",
        )

    def require(self, roster: Roster) -> None:
        """Check that rounds of all clients on a roster are possible.

        Raises:
            ConfigError: rounds are not possible; names the setting.
        """
        if self.adversary == "active" and roster.server == roster.operator:
            raise ConfigError("roster.operator", "(the server)", "must not be the server")
        self._config(roster.count(Role.CLIENT), _NO_ROUND, 1)

    def config(self, at: Standing, shared: SharedArrays) -> MaskingConfig:
        """Settings of one sum.

        Args:
            at: the attempt.
            shared: the shared part of the model (``select``).

        Raises:
            ConfigError: no safe parameters for so few clients, or a ring that sums could leave.
        """
        return self._config(len(at.clients), at.statement.digest, shared.length)

    @abstractmethod
    def _config(self, clients: int, stated: bytes, length: int) -> MaskingConfig:
        """Settings of a sum of so many clients, in a round of a statement's digest."""

    def _masks(
        self, clients: int, stated: bytes, layout: MeanLayout | SumLayout, bits: int, words: int
    ) -> MaskingConfig:
        """The masking of a round, bound to all settings."""
        with renamed_keys(_KEYS):
            found = MaskingConfig.for_cohort(
                clients,
                bits=bits,
                length=words,
                layout_hash=self._named(layout),
                corrupt=self.corrupt,
                dropout=self.dropout,
                adversary=self.adversary,
                statement=stated,
            )
            found = replace(found, min_survivors=max(found.min_survivors, self.min_survivors))
        if found.needs_beacon and self.beacon == "none":
            problem = (
                f"leaves rounds of {found.clients} clients against an active server without a "
                f"graph that it does not choose; take at most {COMPLETE_UP_TO} clients, or"
            )
            raise ConfigError("protection.beacon", self.beacon, problem, ("operator",))
        return found

    def _named(self, layout: MeanLayout | SumLayout) -> bytes:
        return sha256(_LABEL + self.digest + layout.hash).digest()


class MaskedMean(_UnderMasks):
    """A weighted mean under masks: exact except for the rounding of each value to the ring's grid.

    Every client rounds each value once, to a multiple of 2^-fraction_bits; from there to the
    quotient of the sums all arithmetic is of integers. So the mean is within 2^-(fraction_bits + 1)
    of the one of real numbers, a metric's within 2^-(fraction_bits + 1) limit / clip, for the
    largest clip. An array with a smaller clip keeps more digits: it is scaled by the largest power
    of two for which its clip stays within the largest.

    Args:
        clip: largest magnitude of one value, or one for each array, by pattern of its name; of
            several patterns that match, the longest counts, of those the smallest clip. A larger
            value is refused, never cut, and halts its client (``HaltedClient``): clip before, if
            training may reach it.
        max_weight: largest weight of one client, such as its number of examples.
        fraction_bits: binary digits kept after the point.
        metrics: metrics that are averaged under the masks as well, and the largest magnitude of
            each; others do not leave a client.

    Raises:
        ConfigError: a field is out of range.
    """

    weighted: ClassVar[bool] = True
    rounds: ClassVar[int | None] = None
    """Without noise, no budget is counted."""

    clip: Positive | Annotated[Mapping[str, Positive], Filled()]
    max_weight: Count
    fraction_bits: Bits = 24
    metrics: Mapping[str, float] = field(default_factory=dict)

    def _agree(self) -> None:
        super()._agree()
        for bound in self.clip.values() if isinstance(self.clip, Mapping) else (self.clip,):
            if not 1 / _LARGEST <= bound <= _LARGEST:
                problem = f"must be between {1 / _LARGEST:.3g} and {_LARGEST:.3g}"
                raise ConfigError("protection.clip", bound, problem)
        for name, limit in self.metrics.items():
            if limit <= 0:
                raise ConfigError(f"protection.metrics.{name}", limit, "must be above 0")

    def select(self, model: Arrays) -> SharedArrays:
        """Which arrays of a model are shared.

        Raises:
            ConfigError: as for every mean, or an array that is shared has no clip, or a clip no
                such array.
            EncodingError: a value of an array that is shared is not finite.
        """
        found = super().select(model)
        if isinstance(self.clip, Mapping):
            require_matches("protection.clip", self.clip, found.shapes)
            self._bounds(found)
        return found

    def encode(self, update: Update, at: Standing, shared: SharedArrays) -> EncodedVector:
        """A client's words, to be masked.

        Raises:
            SitsOutError: the weight is 0, or below.
            MisfitError: an array is missing, of another shape or no floats, or a metric is missing.
            EncodingError: a value is not finite, or it, the weight or a metric is beyond what was
                settled.
            ConfigError: as ``config``.
        """
        if update.weight < 1:
            # With weight 0 the client would count among the survivors without hiding others.
            raise SitsOutError("sits this round out")
        if update.weight > self.max_weight:
            raise EncodingError("a weight is above protection.max_weight")
        layout = self._layout(len(at.clients), shared.length)
        metrics = [self._scaled(update, name) for name in sorted(self.metrics)]
        values, bounds = shared.join(update.arrays), self._bounds(shared)
        for name, part in shared.split(values).items():
            if not np.all(np.abs(part) <= bounds[name]):
                # The server is not told which one it is, since that follows from the data.
                problem = f"moved beyond its clip of {bounds[name]:g}, or is not finite"
                raise EncodingError(f"array {name!r} {problem}")
        values = np.concatenate([values * self._scales(shared), metrics])
        encoded = layout.encode(values, weight=update.weight)
        return replace(encoded, layout_hash=self._named(layout))

    def decode(
        self, words: RingArray, at: Standing, shared: SharedArrays, *, survivors: int
    ) -> Mean:
        """The mean of ``survivors`` clients: the exact quotient, rounded once."""
        del survivors  # the sum holds the survivors' weights
        found = self._layout(len(at.clients), shared.length).decode(words)
        names = sorted(self.metrics)
        mean = found.mean
        metrics = zip(names, mean[shared.length :].tolist(), strict=True)
        return Mean(
            arrays=shared.split(mean[: shared.length] / self._scales(shared)),
            weight=found.weight,
            metrics={name: value * self.metrics[name] / self._widest for name, value in metrics},
        )

    @property
    def _widest(self) -> float:
        return max(self.clip.values()) if isinstance(self.clip, Mapping) else self.clip

    def _bounds(self, shared: SharedArrays) -> dict[str, float]:
        """Clip of each array.

        Raises:
            ConfigError: an array does not have a clip.
        """
        if not isinstance(self.clip, Mapping):
            return dict.fromkeys(shared.shapes, self.clip)
        found = {}
        for name in shared.shapes:
            fits = [(len(p), -clip) for p, clip in self.clip.items() if fnmatchcase(name, p)]
            if not fits:
                problem = f"has no pattern for array {name!r}, which is shared"
                raise ConfigError("protection.clip", dict(self.clip), problem)
            found[name] = -max(fits)[1]
        return found

    def _scales(self, shared: SharedArrays) -> FloatArray:
        """float64[d], powers of two: exact factors of the values for the ring."""
        scales = [_power(self._widest, bound) for bound in self._bounds(shared).values()]
        return np.repeat(scales, [prod(shape) for shape in shared.shapes.values()])

    def _scaled(self, update: Update, name: str) -> float:
        value = update.metrics.get(name)
        if value is None:
            raise MisfitError(f"metric {name!r} of protection.metrics is missing")
        if not abs(value) <= self.metrics[name]:
            raise EncodingError(f"metric {name!r} is NaN or beyond protection.metrics")
        return value * self._widest / self.metrics[name]

    def _config(self, clients: int, stated: bytes, length: int) -> MaskingConfig:
        layout = self._layout(clients, length)
        return self._masks(clients, stated, layout, layout.codec.bits, layout.words)

    def _layout(self, clients: int, length: int) -> MeanLayout:
        """Layout of the words: a weight, then values and metrics times the weight.

        Raises:
            SumBudgetError: no ring is wide enough.
        """
        largest = clients * self.max_weight * max(1, round(self._widest * 2.0**self.fraction_bits))
        bits = max(8, largest.bit_length() + 1, self.fraction_bits + 1)
        if bits > 64:
            problem = (
                f"sums of {clients} clients with weights up to {self.max_weight} and "
                f"{self.fraction_bits} fraction bits take a ring of {bits} bits, and the widest "
                "has 64: lower it, protection.max_weight or protection.fraction_bits"
            )
            raise SumBudgetError("protection.clip", self.clip, problem)
        with renamed_keys(_KEYS):
            codec = FixedPoint(bits=bits, fraction_bits=self.fraction_bits, clip=self._widest)
            return MeanLayout(
                codec=codec,
                length=length + len(self.metrics),
                clients=clients,
                max_weight=self.max_weight,
            )


class NoisedMean(_UnderMasks):
    """A mean under masks, with Skellam noise inside: differential privacy against the server.

    Every client counts equally, whatever its weight: weights would be released, or need noise. It
    clips all that it shares as one vector, and adds its share of the noise before it masks. An
    array that is not shared is neither clipped nor noised.

    Args:
        clip: largest L2 norm of what a client shares; a longer vector is shortened.
        noise_multiplier: standard deviation of the noise that is counted, over the clip; as
            ``accounting.find_noise_multiplier`` gives it for a budget.
        rounds: how many rounds the budget is for; a client hands in as many noised vectors, and
            refuses one more.
        fraction_bits: binary digits kept after the point.
        ring_bits: width of the ring of the sum.

    Raises:
        ConfigError: a field is out of range.
    """

    weighted: ClassVar[bool] = False

    clip: Positive
    noise_multiplier: Positive
    rounds: Count
    fraction_bits: Annotated[Bits, Within(0, 40)] = 12
    ring_bits: Annotated[Bits, Within(8, 64)] = 32

    @property
    def metrics(self) -> Mapping[str, float]:
        """No metrics: each would need noise of its own."""
        return {}

    def encode(self, update: Update, at: Standing, shared: SharedArrays) -> EncodedVector:
        """A client's words, to be masked: clipped, rotated, rounded and noised.

        Raises:
            MisfitError: an array is missing or of another shape; a value is not a real number, NaN
                or infinite.
            ConfigError: as ``config``.
        """
        values, clients = shared.join(update.arrays), len(at.clients)
        noise, layout = self._noise(clients, shared.length), self._layout(clients, shared.length)
        words = SkellamClient(noise, rotation_seed(at)).protect({"update": values})
        encoded = layout.encode(noise.codec.to_integers(words))
        return replace(encoded, layout_hash=self._named(layout))

    def decode(
        self, words: RingArray, at: Standing, shared: SharedArrays, *, survivors: int
    ) -> Mean:
        """An unbiased estimate of the mean of the clipped vectors of ``survivors`` clients."""
        server = SkellamServer(self._noise(len(at.clients), shared.length), rotation_seed(at))
        sums = server.decode(words, survivors=survivors)["update"]
        return Mean(arrays=shared.split(sums / survivors), weight=survivors, metrics={})

    def deviation(self, *, clients: int, length: int, survivors: int) -> float:
        """Standard deviation of the noise in each value of a mean.

        Args:
            clients: in the cohort.
            length: values that are shared, d (``SharedArrays.length``).
            survivors: clients in the sum.
        """
        return self._noise(clients, length).deviation(survivors) / survivors

    def events(self, *, clients: int, length: int) -> tuple[Event, ...]:
        """What all rounds release, for an accountant (``secure_fedrec.accounting``)."""
        return self._noise(clients, length).events(rounds=self.rounds)

    def _config(self, clients: int, stated: bytes, length: int) -> MaskingConfig:
        return self._masks(clients, stated, self._layout(clients, length), self.ring_bits, length)

    def _noise(self, clients: int, length: int) -> SkellamConfig:
        # What the masks assume does not depend on the layout.
        one = SumLayout(bits=8, length=1, clients=1, largest=1)
        config = self._masks(clients, _NO_ROUND, one, 8, 1)
        with renamed_keys(_KEYS):
            update, digits = Part(name="update", size=length), self.fraction_bits
            whole = Contribution(parts=(update,))
            return SkellamConfig(
                encoding=BoundedEncoding(contribution=whole, clip=self.clip, fraction_bits=digits),
                noise_multiplier=self.noise_multiplier,
                ring_bits=self.ring_bits,
                cohort=config.clients,
                # The parameters of the policy, which every client compares with a SETUP.
                min_survivors=self.min_survivors,
                corrupt=config.corrupt_clients,
            )

    def _layout(self, clients: int, length: int) -> SumLayout:
        noise = self._noise(clients, length)
        with renamed_keys(_KEYS):
            return SumLayout(
                bits=self.ring_bits, length=length, clients=clients, largest=int(noise.codec.clip)
            )


def _power(widest: float, bound: float) -> float:
    """The largest power of two whose product with a bound is within the largest bound."""
    digits = frexp(widest)[1] - frexp(bound)[1]
    return ldexp(1.0, digits - (ldexp(bound, digits) > widest))


ProtectedMean: TypeAlias = MaskedMean | NoisedMean
"""Ways of hiding arrays of which a server learns the mean."""
