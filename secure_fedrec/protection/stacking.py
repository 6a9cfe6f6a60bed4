"""From named layers and their settings to a stack."""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.blocks import TABLE, BlockKind, BlockLayout, BlockShape
from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.bags.carried_out import carried_out as bags_carried_out
from secure_fedrec.protection.bags.hosted_mixes import mixed_hosting
from secure_fedrec.protection.base.carried_out import carried_out
from secure_fedrec.protection.base.compatibility import makers_of
from secure_fedrec.protection.base.hosting import Hosting
from secure_fedrec.protection.base.layer_interfaces import Collector
from secure_fedrec.protection.base.record import Layer, Place, Sizes
from secure_fedrec.protection.base.stack import Halves, Stack
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.protection.layers import (
    BAG_RECORDS,
    RECORDS,
    require_bags_compatible,
    require_compatible,
)
from secure_fedrec.protection.plain.layer import PLAIN
from secure_fedrec.streams import Streams


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
        sizes: sizes of the federation.
        codec: the ring.
        streams: the run's random streams.
        bag_layers: likewise, over the bags; without layers, vectors are sent under names.

    Raises:
        ConfigError: the layers do not stack, settings are of another layer, or one does not fit the
            federation.
    """
    require_compatible(tuple(layers))
    require_bags_compatible(tuple(bag_layers or ()))
    _require_settings(layers, RECORDS, "protection")
    _require_settings(bag_layers or {}, BAG_RECORDS, "bag_protection")
    place = Place(layers=layers, sizes=sizes, codec=codec, streams=streams)
    records = [RECORDS[name] for name in layers]
    for record in records:
        record.fits(place)
    cloaks = [_built(record, place) for record in records if record.role == "cloak"]
    # The layer that is not part of another one's collector.
    maker = next(iter(makers_of(records)), PLAIN)
    collector: Collector = _built(maker, place)
    bags = _bags(bag_layers or {}, place)
    make = maker.hosted
    halves = None if make is None else Halves(make, collector, bags, _with_bags)
    if isinstance(collector, TableCollector) and collector.execution == "real" and make:
        carried_out(collector, make(collector))
    if bags is not None and bags.execution == "real":
        bags_carried_out(bags)
    # If blocks are not named: one block of rows, taken for item rows.
    unnamed = BlockShape(name=TABLE, kind=BlockKind.ITEMS, size=sizes.n_items, width=sizes.width)
    return Stack(
        codec=codec,
        cloak=cloaks[0] if cloaks else None,
        collector=collector,
        n_clients=sizes.n_clients,
        bags=bags,
        layout=BlockLayout(sizes.blocks or (unnamed,), codec),
        hosted=halves,
    )


def _require_settings(
    layers: Mapping[str, Any], records: Mapping[str, Layer], section: str
) -> None:
    """Refuse a layer under another's settings: it would be built with defaults."""
    for name, given in layers.items():
        kind = records[name].settings
        if not isinstance(given, kind):
            raise ConfigError(f"{section}.{name}", given, f"must be a {kind.__name__}")


def _built(record: Layer, place: Place) -> Any:
    settings = place.layers.get(record.name)
    return None if record.build is None else record.build(settings, place)


def _with_bags(sums: Hosting, bags: LayeredBags | None) -> Hosting:
    """Halves of sums, and of the bags besides them."""
    return sums if bags is None or bags.mixes is None else mixed_hosting(bags.mixes, sums)


def _bags(layers: Mapping[str, Any], place: Place) -> LayeredBags | None:
    bags = place.sizes.bags
    if not bags:
        if layers:
            raise ConfigError("bag_protection", " + ".join(layers), "the algorithm gives to no bag")
        return None
    settings = {BAG_RECORDS[name].role: each for name, each in layers.items()}
    with renamed_keys({"protection": "bag_protection"}):
        return LayeredBags(
            bags=bags,
            n_clients=place.sizes.n_clients,
            codec=place.codec,
            streams=place.streams,
            noise=settings.get("noise"),
            routing=settings.get("channel"),
        )
