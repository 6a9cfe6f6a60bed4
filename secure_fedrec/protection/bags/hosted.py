"""Bags of rounds whose clients are elsewhere: each client's vectors in one signed message.

They are sent with the client's first message to the hub, without a further exchange, and those of a
client that is not in the sum are left out of the bags as well. The message: "SFBG", then an
envelope (``session.envelope``, family ``BAGS``) whose body is, for every bag in order,
u32 vectors | their words, packed to the ring's bits; little-endian.
"""

from collections.abc import Mapping

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.bags.bag_vectors import require_bags
from secure_fedrec.protection.bags.client import Giver
from secure_fedrec.protection.bags.embedded import LayeredBags
from secure_fedrec.protection.bags.messages import seal_vectors
from secure_fedrec.protection.bags.mixed_client import MixedGiver
from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.bags.mixed_server import MixedBagHub
from secure_fedrec.protection.bags.server import BagHub
from secure_fedrec.protection.base.hosting import Hosting, Standing
from secure_fedrec.protection.base.layer_interfaces import BagChannel
from secure_fedrec.protection.session import Hub, Identity, Party
from secure_fedrec.uploads import SetBlock


def bags_of(channel: BagChannel | None) -> LayeredBags | None:
    """The bags of a stack, where clients elsewhere can give to them.

    Raises:
        ConfigError: the keys belong to one party.
    """
    if channel is None or isinstance(channel, LayeredBags):
        return channel
    problem = "runs in the embedded engine only: clients elsewhere cannot give to it"
    raise ConfigError("bag_protection", type(channel).__name__, problem)


def giver_of(
    half: Party,
    at: Standing,
    identity: Identity,
    channel: LayeredBags,
    given: Mapping[str, SetBlock],
) -> Party:
    """A client's half that gives to the bags as well, under its name or through mixes.

    Args:
        half: the half.
        at: the attempt.
        identity: the client's key.
        channel: the bags.
        given: float64 vectors by bag, one segment.

    Raises:
        WireError: a bag is missing or unknown, or its vectors do not fit its sizes.
        EncodingError: a value cannot be encoded.
    """
    require_bags(given, channel.bags, 1)
    if channel.mixes is None:
        return Giver(half, seal_vectors(channel, at, identity, given))
    words = {name: channel.protect(name, given[name]) for name in channel.bags}
    (messages,) = channel.mixes.messages(words, at.round)
    return MixedGiver(half, BagAttempt(channel.mixes, at), identity, messages)


def bag_hub(
    hub: Hub, at: Standing, identity: Identity, channel: LayeredBags, hosting: Hosting
) -> BagHub | MixedBagHub:
    """A hub that collects vectors for bags in addition to the messages of another hub.

    Args:
        hub: the other one.
        at: the attempt.
        identity: the server's key.
        channel: the bags.
        hosting: hosting of the round.
    """
    if channel.mixes is None:
        return BagHub(hub, at, channel)
    return MixedBagHub(hub, BagAttempt(channel.mixes, at), identity, hosting)
