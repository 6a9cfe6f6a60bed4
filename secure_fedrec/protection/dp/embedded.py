"""Masked sums with Skellam noise inside: user-level differential privacy against the server.

A client's whole contribution, rows and counts together, is clipped, rotated, rounded and noised in
the ring before it is masked (``dp.skellam``). The server opens only the sum, reverts the rotation,
and has unbiased estimates of the sums and of the counts. An item's denominator is its estimated
count, but never below a public floor: for an item with few ratings, noise divided by a small number
would be a large step.

Noise comes from the operating system's generator in every execution, so two runs of the same
configuration differ in it.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError, EncodingError, renamed_keys
from secure_fedrec.protection.base.dense_uploads import HIDDEN, DenseWords
from secure_fedrec.protection.base.events import explained
from secure_fedrec.protection.base.layer_interfaces import Released, Withstood
from secure_fedrec.protection.base.table import TableSizes, aggregate_note
from secure_fedrec.protection.dp.config import (
    DP_KEYS,
    ClipConfig,
    SkellamLayerConfig,
    corrupt_clients,
    encoding_of,
)
from secure_fedrec.protection.dp.skellam import SkellamClient, SkellamConfig, SkellamServer
from secure_fedrec.protection.masking.embedded import MaskedSession, MaskedSum
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Wire

NOISED = replace(HIDDEN, noise="added")
"""Traits of noised uploads under masks."""


class NoisedSum(MaskedSum):
    """Collector of clipped, noised and masked uploads.

    Args:
        config: settings of the masks.
        clip: settings of the clip.
        noise: settings of the noise, with its multiplier.
        cohort: most clients in a round.
        streams: the run's random streams.
        table: sizes and ring, see ``TableCollector``.

    Raises:
        ConfigError: a setting is out of range, or the multiplier has not been found yet.
        SumBudgetError: the ring is too small for contributions and noise.
    """

    traits = NOISED

    def __init__(
        self,
        config: MaskingLayerConfig,
        *,
        clip: ClipConfig,
        noise: SkellamLayerConfig,
        cohort: int,
        streams: Streams,
        **table: Unpack[TableSizes],
    ) -> None:
        super().__init__(config, streams=streams, **table)
        if noise.noise_multiplier is None:
            raise ConfigError(
                "protection.noise_multiplier", None, "must be found from the budget first"
            )
        if config.tail_floor > 1:
            raise ConfigError(
                "protection.tail_floor", config.tail_floor, "exact counts would leave beside noise"
            )
        corrupt = corrupt_clients(config, noise, cohort=cohort, n_clients=self.n_clients)
        if corrupt >= config.min_survivors:
            problem = f"must exceed the {corrupt} clients whose noise does not count"
            raise ConfigError("protection.min_survivors", config.min_survivors, problem)
        self.clip = clip
        self.noise = replace(noise, corrupt=corrupt)
        self.rotation = streams.stream("rotation")
        with renamed_keys(DP_KEYS, {"protection.fraction_bits": noise.fraction_bits}):
            n_items, width = self.n_items, self.width
            self.skellam = SkellamConfig(
                encoding=encoding_of(n_items=n_items, width=width, clip=clip, noise=noise),
                noise_multiplier=noise.noise_multiplier,
                ring_bits=self.codec.bits,
                cohort=cohort,
                min_survivors=config.min_survivors,
                corrupt=corrupt,
            )
            _ = self.skellam.table  # refuses noise that spans too many ring units, or none

    def withstands(self, cohort: int) -> Withstood:
        """The masks' coalitions, with at most as many clients as the noise allows for."""
        masks = super().withstands(cohort)
        return replace(
            masks,
            alone=self.skellam.corrupt,
            value=self.skellam.corrupt,
            reason="it knows the noise of its own clients, and noise is added for that many only",
        )

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "NoisedSession":
        """One round under pads, of noised words."""
        return NoisedSession(self, round_, participants, wire)

    def expected(self, plain: Aggregate) -> None:
        """Noise differs from round to round."""
        return

    def noised(self, part: DenseWords, seed: bytes) -> DenseWords:
        """Contributions, clipped and noised.

        Args:
            part: the clients' words.
            seed: public seed of the round's rotation.
        """
        cut = self.n_items * self.width
        words = np.empty_like(part.words)
        for noised, plain in zip(words, part.words, strict=True):
            contribution = {
                "rows": self.codec.decode(plain[:cut]),
                "counts": self.codec.to_integers(plain[cut:]).astype(np.float64),
            }
            noised[:] = SkellamClient(self.skellam, seed).protect(contribution)
        return replace(part, words=words)

    def estimated(self, masked: Aggregate, seed: bytes, *, clients: int, round_: int) -> Aggregate:
        """Estimates from a sum of noised words: reals on the ring's grid, whole denominators.

        Args:
            masked: the sum.
            seed: as of ``noised``.
            clients: how many are in it.
            round_: for messages.

        Raises:
            EncodingError: an estimate leaves the ring.
        """
        codec = self.skellam.codec
        words = np.concatenate([masked.ring.reshape(-1), codec.from_integers(masked.counts)])
        sums = SkellamServer(self.skellam, seed).decode(words, survivors=clients)
        integers = np.rint(sums["rows"] * self.codec.scale)
        if np.abs(integers).max(initial=0.0) >= 2.0 ** (self.codec.bits - 1):
            raise EncodingError(
                f"round {round_}: an estimate leaves the ring; lower the noise or "
                "ring.fraction_bits"
            )
        ring = self.codec.from_integers(integers.astype(np.int64))
        # Nobody has more raters than there are clients; clamping an estimate costs no privacy.
        least, most = self.noise.least_count, max(self.noise.least_count, clients)
        return Aggregate(
            ring=ring.reshape(self.n_items, self.width),
            counts=np.clip(np.rint(sums["counts"]), least, most).astype(np.int64),
            codec=self.codec,
            noise=self.skellam.deviation(clients),
        )

    def released(self, *, rounds: int, repeated: int = 0) -> Released:
        """Noised sums."""
        events = explained(self.skellam.events(rounds=rounds + repeated), repeated)
        return Released(part="sums", events=events, delta=self.noise.delta, keys=DP_KEYS)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        name, masks = super().describe()
        return name, {**masks, "clip": asdict(self.clip), "skellam": asdict(self.noise)}


class NoisedSession(MaskedSession):
    """One round of noised uploads."""

    collector: NoisedSum

    def close(self) -> Aggregate:
        """Clip, noise, hide, send and sum what was gathered."""
        self._gathered.require_complete()
        aggregate = self.collector.estimated(
            self._masked_sum(), self._seed, clients=len(self.order), round_=self.round
        )
        self.wire.show(aggregate_note(self.round, aggregate))
        return aggregate

    @property
    def _seed(self) -> bytes:
        """Public seed of the round's rotation, not known before the round.

        A deployment takes it from a beacon; a simulation from a seeded stream.
        """
        zero = np.zeros(1, dtype=np.int64)
        return self.collector.rotation.words_at(self.round, zero, zero, width=4).tobytes()

    def _hidden(self, parts: Iterator[DenseWords]) -> Iterator[DenseWords]:
        """Contributions, clipped and noised."""
        return (self.collector.noised(part, self._seed) for part in parts)
