"""From named layers and their settings to a stack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from secure_fedrec.blocks import BlockKind, BlockLayout, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import BagShape, LayeredBags, LocalDPConfig
from secure_fedrec.protection.base import Cloak, Collector
from secure_fedrec.protection.compatibility import require_bags_compatible, require_compatible
from secure_fedrec.protection.configured import in_table
from secure_fedrec.protection.denoisers import Denoisers, DenoisersConfig
from secure_fedrec.protection.hidden_sums import (
    ClipConfig,
    EncryptedSum,
    EncryptionLayerConfig,
    MaskedSum,
    MaskingLayerConfig,
    NoisedSum,
    SkellamLayerConfig,
)
from secure_fedrec.protection.linkage_hardened import LinkageHardened, LinkageHardenedConfig
from secure_fedrec.protection.masking import COMPLETE_UP_TO
from secure_fedrec.protection.plain import DirectSum
from secure_fedrec.protection.randomized_response import (
    RandomizedResponse,
    RandomizedResponseConfig,
)
from secure_fedrec.protection.routed_denoisers import RoutedDenoisers, RoutingLayerConfig
from secure_fedrec.protection.shared_upload import SharedUpload, SharedUploadConfig
from secure_fedrec.protection.stack import Stack
from secure_fedrec.protection.virtual_ratings import VirtualRatings, VirtualRatingsConfig
from secure_fedrec.streams import Streams

__all__ = ["BAG_LAYERS", "LAYERS", "Sizes", "build_stack"]

LAYERS: Mapping[str, type] = MappingProxyType(
    {
        "virtual-ratings": VirtualRatingsConfig,
        "randomized-response": RandomizedResponseConfig,
        "denoisers": DenoisersConfig,
        "routing": RoutingLayerConfig,
        "linkage-hardened": LinkageHardenedConfig,
        "shared-upload": SharedUploadConfig,
        "clip": ClipConfig,
        "skellam": SkellamLayerConfig,
        "masking": MaskingLayerConfig,
        "paillier": EncryptionLayerConfig,
    }
)
"""Settings by name of a layer over rows."""

BAG_LAYERS: Mapping[str, type] = MappingProxyType(
    {"local-dp": LocalDPConfig, "routing": RoutingLayerConfig}
)
"""Settings by name of a layer over bags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a stack is built for.

    Args:
        n_clients: clients of the federation.
        n_items: rows of the shared table.
        width: values per row.
        cohort: most clients in a round.
        bags: sizes of the bags that uploads give to, by name.
        popularity: int64[n_items], clients that rated each item, as everybody knows; None where
            rows are not items.
        blocks: named blocks of an upload, which lie in that table; none is one block of rows.
    """

    n_clients: int
    n_items: int
    width: int
    cohort: int
    bags: Mapping[str, BagShape] = field(default_factory=dict)
    popularity: IntArray | None = field(default=None, compare=False)
    blocks: tuple[BlockShape, ...] = ()

    def covered(self) -> int:
        """Items that a cloak may draw from."""
        of_items = [shape.size for shape in self.blocks if shape.kind is BlockKind.ITEMS]
        return of_items[0] if of_items else self.n_items


def build_stack(
    layers: Mapping[str, Any],
    *,
    sizes: Sizes,
    codec: FixedPoint,
    streams: Streams,
    bag_layers: Mapping[str, Any] | None = None,
) -> Stack:
    """Put layers together.

    Args:
        layers: settings by layer name, in the order data passes them, over the rows.
        sizes: of the federation.
        codec: the ring.
        streams: the run's random streams.
        bag_layers: likewise, over the bags; none sends vectors under names.

    Raises:
        ConfigError: the layers do not stack, or a setting does not fit the federation.
    """
    require_compatible(tuple(layers))
    require_bags_compatible(tuple(bag_layers or ()))
    _require_fits(layers, sizes)
    return Stack(
        codec=codec,
        cloak=_cloak(layers, sizes, streams),
        collector=_collector(layers, sizes, codec, streams),
        n_clients=sizes.n_clients,
        bags=_bags(bag_layers or {}, sizes, codec, streams),
        layout=BlockLayout(sizes.blocks, codec) if sizes.blocks else None,
    )


def _bags(
    layers: Mapping[str, Any], sizes: Sizes, codec: FixedPoint, streams: Streams
) -> LayeredBags | None:
    if not sizes.bags:
        if layers:
            raise ConfigError("bag_protection", " + ".join(layers), "the algorithm gives to no bag")
        return None
    with in_table("bag_protection"):
        return LayeredBags(
            bags=sizes.bags,
            n_clients=sizes.n_clients,
            codec=codec,
            streams=streams,
            noise=layers.get("local-dp"),
            routing=layers.get("routing"),
        )


def _cloak(layers: Mapping[str, Any], sizes: Sizes, streams: Streams) -> Cloak | None:
    if "virtual-ratings" in layers:
        return VirtualRatings(
            layers["virtual-ratings"],
            n_items=sizes.covered(),
            streams=streams,
            popularity=sizes.popularity,
        )
    if "randomized-response" in layers:
        return RandomizedResponse(
            layers["randomized-response"], n_items=sizes.covered(), streams=streams
        )
    return None


def _require_fits(layers: Mapping[str, Any], sizes: Sizes) -> None:
    """Check what only layers and cohort together decide, before anything is built.

    Raises:
        ConfigError: they do not fit.
    """
    for layer in ("masking", "paillier"):
        if layer in layers and layers[layer].min_survivors > sizes.cohort:
            raise ConfigError(
                "protection.min_survivors",
                layers[layer].min_survivors,
                f"only {sizes.cohort} clients take part in a round",
            )
    masks = layers.get("masking")
    if masks is not None and masks.adversary == "active" and sizes.cohort > COMPLETE_UP_TO:
        raise ConfigError(
            "protection.adversary",
            "active",
            f"{sizes.cohort} clients in a round need a sparse graph, and that a beacon, which the "
            f"engine has not: at most {COMPLETE_UP_TO} clients, or",
            ("curious",),
        )
    if masks is not None:
        masks.require_cohort(sizes.cohort, sizes.n_clients)
    cloak = layers.get("virtual-ratings")
    if "shared-upload" in layers and cloak is not None and not cloak.sticky:
        raise ConfigError(
            "protection.sticky",
            False,
            "item numbers of shared uploads stay visible: fresh virtual items would be intersected",
            (True,),
        )
    if "shared-upload" in layers and layers["shared-upload"].floor > sizes.cohort:
        raise ConfigError(
            "protection.floor",
            layers["shared-upload"].floor,
            f"only {sizes.cohort} clients take part in a round",
        )


def _collector(
    layers: Mapping[str, Any], sizes: Sizes, codec: FixedPoint, streams: Streams
) -> Collector:
    table: dict[str, Any] = {
        "n_clients": sizes.n_clients,
        "n_items": sizes.n_items,
        "width": sizes.width,
        "codec": codec,
    }
    if "skellam" in layers:
        return NoisedSum(
            layers["masking"],
            clip=layers["clip"],
            noise=layers["skellam"],
            cohort=sizes.cohort,
            streams=streams,
            **table,
        )
    if "routing" in layers:
        return RoutedDenoisers(
            layers["denoisers"], routing=layers["routing"], streams=streams, **table
        )
    makers: Mapping[str, Callable[..., Collector]] = {
        "denoisers": Denoisers,
        "linkage-hardened": LinkageHardened,
        "shared-upload": SharedUpload,
        "masking": MaskedSum,
        "paillier": EncryptedSum,
    }
    for name, maker in makers.items():
        if name in layers:
            return maker(layers[name], streams=streams, **table)
    return DirectSum(**table)
