"""What layers say that they withstand, played by the generic adversary; and what they do not say.

The positive controls are the same game one step harder than what a stack claims: there the same
coalition must win, or its silence where something is claimed would mean nothing.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attacks.planted.worlds import Outcome, play
from attacks.view.knowledge import UnknownTraitError
from secure_fedrec.accounting import claim
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    BAG_LAYERS,
    BAG_RECORDS,
    BAG_STACKS,
    LAYERS,
    RECORDS,
    STACKS,
    BagShape,
    Sizes,
    Stack,
    Stand,
    build_stack,
)
from secure_fedrec.protection.plain.embedded import DirectSum
from secure_fedrec.streams import Streams

GAMES = ("values", "owners", "contribution")
"""From the least that can be hidden to the most."""

SETTINGS: dict[str, dict[str, Any]] = {
    "virtual-ratings": {"sticky": True},
    "denoisers": {"count": 2},
    "shared-upload": {"count": 2, "floor": 2},
    "clip": {"norm": 4.0},
    "skellam": {"fraction_bits": 8},
    "local-dp": {"clip": 3.0, "fraction_bits": 4},
}
NOISED = {"skellam", "local-dp"}
MUCH, LITTLE = 20.0, 0.02
"""Noise multipliers: what is claimed means something, and rounds average it out."""

ROUNDS, DELTA = 2, 1e-5
Maker = Callable[[Sizes, FixedPoint, Streams], Stack]


def settings_of(layer: str, known: dict[str, type], noise: float, **changes: Any) -> Any:
    drawn = {"noise_multiplier": noise} if layer in NOISED else {}
    return known[layer](**{**SETTINGS.get(layer, {}), **drawn, **changes})


def rows(stack: tuple[str, ...], *, noise: float = MUCH, **changes: Any) -> Maker:
    layers = {name: settings_of(name, dict(LAYERS), noise, **changes) for name in stack}
    return lambda sizes, codec, streams: build_stack(
        layers, sizes=sizes, codec=codec, streams=streams
    )


def bags(stack: tuple[str, ...], *, noise: float = MUCH) -> Maker:
    layers = {name: settings_of(name, dict(BAG_LAYERS), noise) for name in stack}
    return lambda sizes, codec, streams: build_stack(
        {}, sizes=sizes, codec=codec, streams=streams, bag_layers=layers
    )


def odds_of(make: Maker, *, in_bag: bool) -> float:
    """What the price of the noise lets anybody be right: epsilon and delta of all rounds."""
    shape = {"all": BagShape(width=16, most=1)} if in_bag else {}
    sizes = Sizes(n_clients=10, n_items=16, width=1, cohort=10, bags=shape)
    (released,) = make(sizes, FixedPoint(), Streams.from_seed(1)).released(rounds=ROUNDS)
    stated = claim(released.events, adversary="server", delta=released.delta)
    assert stated is not None
    return math.exp(stated.epsilon) / (1.0 + math.exp(stated.epsilon)) + DELTA


def stands(stack: tuple[str, ...], records: Any) -> Iterator[Stand]:
    for name in stack:
        yield from records[name].stands


CLAIMED = [
    *((stack, stand, False) for stack in STACKS for stand in stands(stack, RECORDS)),
    *((stack, stand, True) for stack in BAG_STACKS for stand in stands(stack, BAG_RECORDS)),
]


def named(value: object) -> str:
    return f"{'+'.join(value.corrupt)}:{value.hides}" if isinstance(value, Stand) else str(value)


@pytest.mark.claim("coalitions")
@pytest.mark.parametrize(("stack", "stand", "in_bag"), CLAIMED, ids=named)
def test_what_a_layer_withstands_is_not_told(
    stack: tuple[str, ...], stand: Stand, in_bag: bool
) -> None:
    make = bags(stack) if in_bag else rows(stack)
    outcome = play(make, corrupt=stand.corrupt, hides=stand.hides, seed=3, in_bag=in_bag)
    odds = 0.5
    if stand.hides == "contribution" and NOISED & {*stack}:
        odds = odds_of(make, in_bag=in_bag)
        assert odds < 0.95  # the price says something
    assert not outcome.beats(odds), outcome


def next_game(stack: tuple[str, ...], records: Any) -> str | None:
    """The least of what the server is not said to be kept from; None if it is kept from all."""
    held = [GAMES.index(each.hides) for each in stands(stack, records) if "server" in each.corrupt]
    least = max(held, default=-1) + 1
    return GAMES[least] if least < len(GAMES) else None


@pytest.mark.claim("coalitions")
@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(stack) or "none")
def test_the_server_wins_where_nothing_is_claimed(stack: tuple[str, ...]) -> None:
    game, noise = next_game(stack, RECORDS), LITTLE
    outcome = play(rows(stack, noise=noise), corrupt=("server",), hides=game or GAMES[-1], seed=4)
    assert outcome.beats(), outcome
    assert (game is None) == bool(NOISED & {*stack})


@pytest.mark.claim("coalitions")
@pytest.mark.parametrize("stack", BAG_STACKS, ids=lambda stack: "+".join(stack) or "none")
def test_the_server_wins_over_bags_where_nothing_is_claimed(stack: tuple[str, ...]) -> None:
    game = next_game(stack, BAG_RECORDS) or GAMES[-1]
    make = bags(stack, noise=LITTLE)
    assert play(make, corrupt=("server",), hides=game, seed=5, in_bag=True).beats()


def test_keys_at_the_clients_keep_the_sums_as_well() -> None:
    """Not of the record, for it is a setting: the server learns no sum."""
    hidden = rows(("paillier",), holder="clients")
    assert not play(hidden, corrupt=("server",), hides="contribution", seed=6).beats()
    assert play(rows(("paillier",)), corrupt=("server",), hides="contribution", seed=6).beats()


def test_changing_cohorts_are_subtracted() -> None:
    """Masks hide an upload in the sum of those who came: of other sums they say nothing."""
    make = rows(("masking",))
    game: dict[str, Any] = {"corrupt": ("server",), "hides": "owners", "seed": 7}
    assert not play(make, **game).beats()
    assert play(make, **game, cohort=6, rounds=4).beats()


def test_all_holders_of_shares_together_read_them() -> None:
    make = rows(("virtual-ratings", "shared-upload"))
    assert play(make, corrupt=("server", "denoisers"), hides="values", seed=8).beats()


def test_rounds_average_noise_out() -> None:
    make = rows(("clip", "skellam", "masking"), noise=0.17)
    once, often = (
        play(make, corrupt=("server",), hides="contribution", seed=9, trials=64, rounds=rounds)
        for rounds in (1, 10)
    )
    assert once.wins < often.wins
    assert often.beats()


def test_clients_alone_read_the_table() -> None:
    one: dict[str, Any] = {"corrupt": ("client:9",), "seed": 10}
    assert play(rows(("masking",)), **one, hides="contribution").beats()
    assert not play(rows(("masking",)), **one, hides="owners").beats()


class Silent(DirectSum):
    """A collector of somebody else's, which states no trait."""

    traits = property(lambda self: self._none())

    def _none(self) -> None:
        raise AttributeError("traits")


def test_nothing_is_concluded_about_a_stack_that_states_nothing() -> None:
    def silent(sizes: Sizes, codec: FixedPoint, streams: Streams) -> Stack:
        del streams
        shape = {"n_clients": sizes.n_clients, "n_items": sizes.n_items, "width": sizes.width}
        collector = Silent(codec=codec, **shape)
        return Stack(codec=codec, cloak=None, collector=collector, n_clients=sizes.n_clients)

    with pytest.raises(UnknownTraitError, match="does not state its trait 'uploads'"):
        play(silent, corrupt=("server",), hides="values", seed=11, trials=1)


def test_what_is_no_game_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a game"):
        play(rows(()), corrupt=("server",), hides="everything", seed=1, trials=1)
    with pytest.raises(ConfigError, match=r"layer\.stands\.hides.*unknown"):
        Stand(corrupt=("server",), hides="everything")  # type: ignore[arg-type]
    everybody = tuple(f"client:{client}" for client in range(9))
    with pytest.raises(ConfigError, match="leaves no client"):
        play(rows(()), corrupt=everybody, hides="values", seed=1, trials=1)


@pytest.mark.parametrize(("wins", "beats"), [(24, False), (36, False), (42, True), (48, True)])
def test_luck_is_no_win(wins: int, beats: bool) -> None:
    assert Outcome(wins=wins, trials=48).beats() == beats
