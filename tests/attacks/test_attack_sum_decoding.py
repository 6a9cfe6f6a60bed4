"""Sums over few clients: what is planted is found, and nothing that is called certain is false."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attacks.families.sums.decoded import Decoded, Entry
from attacks.families.sums.round_sums import RoundSums
from attacks.families.sums.sum_decoding import decode
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint

ONE = np.array([0.0, 1.0])
STARS = np.arange(1.0, 6.0)
LAMBDA = 0.001
WIDE = FixedPoint()


class Federation:
    """Clients, who rated which item and how, and the sums that a server is left with."""

    def __init__(
        self,
        raters: Sequence[Sequence[int]],
        *,
        clients: int,
        width: int,
        seed: int,
        levels: FloatArray = ONE,
        size: float = 0.005,
        mean: float = 0.0,
        codec: FixedPoint = WIDE,
        bound: bool = True,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.users = rng.uniform(-size, size, (clients, width)) + mean * size
        self.raters = [tuple(each) for each in raters]
        self.vectors = rng.uniform(-size, size, (len(raters), width))
        self.ratings = [rng.choice(levels[levels != 0], len(each)) for each in raters]
        words = np.zeros((len(raters), width), dtype=codec.dtype)
        for item, (own, rated) in enumerate(zip(self.raters, self.ratings, strict=True)):
            for client, rating in zip(own, rated, strict=True):
                off = rating - self.users[client] @ self.vectors[item]
                row = -off * self.users[client] + LAMBDA * self.vectors[item]
                words[item] += codec.encode(row[None])[0]
        counts: IntArray = np.array([len(each) for each in raters], dtype=np.int64)
        values = codec.decode(codec.reduce(words))
        self.sums = RoundSums(
            items=np.arange(len(raters)),
            counts=counts,
            rows=LAMBDA * counts[:, None] * self.vectors - values,
            vectors=self.vectors,
            levels=levels,
            resolution=codec.resolution,
            bound=size * (1 + abs(mean)) if bound else np.inf,
        )

    def client_of(self, found: Decoded, who: int) -> int:
        """Whose vector a pseudonym's is closest to, of all that it may have."""
        possible = [entry.vector for entry in found.entries[who]]
        off = [np.linalg.norm(self.users - vector, axis=1) for vector in possible]
        return int(np.min(off, axis=0).argmin())

    def judged(self, found: Decoded) -> tuple[set[tuple[int, int]], int]:
        """True certain interactions, and how many certain claims are false."""
        right, wrong = set(), 0
        for (who, row), (rating, certain) in found.ties.items():
            if not certain:
                continue
            client, own = self.client_of(found, who), self.raters[row]
            true = client in own
            if true and rating == rating:
                true = bool(self.ratings[row][own.index(client)] == rating)
            right |= {(client, row)} if true else set()
            wrong += not true
        for who in found.solved:
            entry = found.entries[who][0]
            off = float(np.linalg.norm(self.users[self.client_of(found, who)] - entry.vector))
            wrong += off > entry.error + 1e-12
        return right, wrong


def drawn(rng: np.random.Generator, clients: int, sizes: Sequence[int]) -> list[list[int]]:
    return [sorted(rng.choice(clients, size, replace=False).tolist()) for size in sizes]


# --- nothing false --------------------------------------------------------------------------------


@pytest.mark.claim("certain-is-right")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 100_000),
    width=st.integers(1, 20),
    fraction=st.sampled_from([8, 10, 12, 16, 24, 32]),
    levels=st.sampled_from([ONE, STARS]),
    size=st.sampled_from([0.005, 0.3]),
    mean=st.sampled_from([0.0, 1.0]),
    clients=st.sampled_from([5, 25, 60]),
    least=st.integers(1, 4),
    bound=st.booleans(),
)
@example(  # two readings of the same pair of rows, which agree on what is false
    seed=403_298_705,
    width=5,
    fraction=24,
    levels=STARS,
    size=0.005,
    mean=1.0,
    clients=5,
    least=2,
    bound=False,
)
def test_nothing_certain_is_false(
    seed: int,
    width: int,
    fraction: int,
    levels: FloatArray,
    size: float,
    mean: float,
    clients: int,
    least: int,
    bound: bool,
) -> None:
    """Coarse rings, few dimensions, vectors around a common mean, floors: all sums are real."""
    rng = np.random.default_rng([seed, 1])
    bits = 64 if fraction > 20 else 32
    federation = Federation(
        drawn(rng, clients, rng.integers(least, 6, 60).tolist()),
        clients=clients,
        width=width,
        seed=seed,
        levels=levels,
        size=size,
        mean=mean,
        codec=FixedPoint(bits=bits, fraction_bits=fraction, clip=16.0),
        bound=bound,
    )
    found = decode(federation.sums, budget=2.0**18)
    _, wrong = federation.judged(found)
    assert wrong == 0
    assert found.false <= 2.0**-20


@pytest.mark.claim("certain-is-right")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 100_000),
    width=st.integers(1, 8),
    fraction=st.sampled_from([8, 10, 12, 16]),
    levels=st.sampled_from([ONE, STARS]),
    close=st.sampled_from([0.0, 1e-6, 1e-2, 1.0]),
)
def test_decoys_explain_nothing_for_certain(
    seed: int, width: int, fraction: int, levels: FloatArray, close: float
) -> None:
    """Vectors of strangers, or next to a rater's: in a coarse ring they explain most sums."""
    rng = np.random.default_rng([seed, 1])
    codec = FixedPoint(bits=32, fraction_bits=fraction, clip=16.0)
    federation = Federation(
        drawn(rng, 100, rng.integers(2, 5, 80).tolist()),
        clients=100,
        width=width,
        seed=seed,
        levels=levels,
        size=0.5,
        codec=codec,
        bound=False,
    )
    near = federation.users[:40] + close * rng.uniform(-0.5, 0.5, (40, width))
    decoys = rng.uniform(-0.5, 0.5, (40, width)) if close == 1.0 else near
    found = decode(federation.sums, [(each, 1e-15) for each in decoys], budget=2.0**18)
    certain = {tie for tie, (_, sure) in found.ties.items() if sure and tie[0] < 40}
    # Closer than the ring tells apart, a decoy is its rater.
    raters = certain if close < 1.0 else set()
    assert all(who in federation.raters[row] for who, row in raters)
    assert certain == raters


@pytest.mark.claim("certain-is-right")
def test_rank_two_and_eight_digits_name_nobody() -> None:
    """With 60 known vectors most rows of unknown raters are explained by chance.

    So nothing is certain of any of them, and the search counts them as tried.
    """
    rng = np.random.default_rng([5, 1])
    federation = Federation(
        [[60 + int(c) for c in rng.choice(100, 3, replace=False)] for _ in range(200)],
        clients=160,
        width=2,
        seed=5,
        levels=STARS,
        size=0.5,
        codec=FixedPoint(bits=32, fraction_bits=8, clip=16.0),
        bound=False,
    )
    assert sum(explained(federation, row, known=60) for row in range(10)) >= 6
    known = [(each, 1e-15) for each in federation.users[:60]]
    found = decode(federation.sums, known)
    assert not any(sure for _, sure in found.ties.values())
    assert found.tried > 2**20


def explained(federation: Federation, row: int, *, known: int) -> bool:
    """Whether three of the first so many clients' vectors add up to a row, with some ratings."""
    users, sums = federation.users[:known], federation.sums
    off = STARS[:, None] - users @ sums.vectors[row]
    added = (off[..., None] * users).transpose(1, 0, 2)
    two = np.triu_indices(known, 1)
    pairs = added[two[0]][:, :, None] + added[two[1]][:, None]
    for third in range(known):
        others = (two[0] != third) & (two[1] != third)
        left = sums.rows[row] - added[third]
        gaps = np.abs(pairs[others][..., None, :] - left).max(axis=-1)
        if (gaps <= 1.5 * sums.resolution).any():
            return True
    return False


def named(found: Decoded, known: int) -> set[tuple[int, int]]:
    """Certain interactions of those known beforehand."""
    return {tie for tie, (_, sure) in found.ties.items() if sure and tie[0] < known}


def opposed(seed: int, *, clients: int = 100, **others: Any) -> Federation:
    """A federation of eight dimensions with crowds beside rows of the first few clients."""
    rng = np.random.default_rng([seed, 1])
    crowd = drawn(rng, clients, rng.integers(12, 40, 20).tolist())
    return Federation([*others.pop("rows"), *crowd], clients=clients, width=8, seed=seed, **others)


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_of_two_known_vectors_that_are_equal_neither_is_named() -> None:
    """Copies of one vector under two names are two clients, and a row may be of either."""
    federation = opposed(1, rows=[[0], [0], [0, 1], [0, 1], [1]])
    copies = [(federation.users[0], 1e-15), (federation.users[0], 1e-15)]
    found = decode(federation.sums, copies)
    assert not named(found, 2)
    assert {row for _, row in federation.judged(found)[0]} >= {0, 1}, "under a pseudonym"
    assert named(decode(federation.sums, copies[:1]), 1) >= {(0, 0), (0, 1)}


@pytest.mark.claim("indistinguishable-stay-unnamed")
@pytest.mark.parametrize(("levels", "factor"), [(ONE, 1.0), (STARS, 2.0)])
def test_like_vectors_taken_off_like_rows_leave_like_rows(
    levels: FloatArray, factor: float
) -> None:
    """Rows of the same two raters, less the vectors of one who is neither, under two names."""
    codec = FixedPoint(bits=64, fraction_bits=18, clip=16.0)
    federation = opposed(2, rows=12 * [[0, 1]], levels=levels, codec=codec)
    known = [(federation.users[5], 1e-15), (factor * federation.users[5], 1e-15)]
    assert not named(decode(federation.sums, known), 2)


def test_of_two_opposite_vectors_neither_is_named() -> None:
    """On a scale around 0 one vector's rating is the opposite one's opposite rating."""
    around = np.arange(-2.0, 3.0)
    federation = opposed(3, rows=2 * [[0, 1]], levels=around)
    known = [(federation.users[1], 1e-15), (-federation.users[1], 1e-15)]
    found = decode(federation.sums, known)
    assert not named(found, 2)


@pytest.mark.claim("indistinguishable-stay-unnamed")
@pytest.mark.parametrize("raters", [4, 7])
def test_a_lattice_has_more_than_one_solution_where_two_vectors_are_equal(raters: int) -> None:
    pytest.importorskip("flint")
    federation = opposed(4, rows=[list(range(raters))], levels=ONE)
    own = [(each, 1e-15) for each in federation.users[: raters + 3]]
    first = decode(federation.sums, own)
    assert named(first, len(own)) == {(who, 0) for who in range(raters)}
    both = decode(federation.sums, [*own, own[0]])
    assert not named(both, len(own) + 1) & {(0, 0), (len(own), 0)}


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_who_is_almost_a_client_of_two_names_is_not_named() -> None:
    """A row that hardly depends on a vector is of her as well who has it under two names."""
    federation = opposed(8, rows=[[0, 1]], levels=ONE)
    sums, (own, other) = federation.sums, federation.users[:2]
    apart = 8 * float(sums.errors.max())
    little = float(sums.errors[0]) / 2 / apart
    sums.vectors[0] = own * (1 - little) / (own @ own)
    sums.rows[0] = little * own + (1 - other @ sums.vectors[0]) * other
    aside = np.cross(own[:3], [1.0, 0.0, 0.0])
    nearly = own + apart * np.pad(aside / np.linalg.norm(aside), (0, 5))
    known = [(own, 1e-15), (own, 1e-15), (nearly, 1e-15), (other, 1e-15)]
    assert named(decode(sums, known), 4) == {(3, 0)}


def test_a_row_of_a_few_ring_units_names_nobody() -> None:
    """Two opposite vectors add up to next to nothing, and so may two others."""
    federation = opposed(5, rows=[[0, 1]], levels=STARS)
    sums, own = federation.sums, federation.users[0]
    error = float(sums.errors[0])
    toward = own / np.linalg.norm(own)
    sums.vectors[0] = -toward * error / np.linalg.norm(own) ** 2  # own.V = -error / |own|
    aside = np.random.default_rng(0).standard_normal(8)
    aside -= (aside @ toward) * toward
    sums.rows[0] = 2 * error * toward + 0.9 * error * aside / np.linalg.norm(aside)
    found = decode(sums, [(own, 1e-15), (-own, 1e-15)])
    assert not named(found, 2)


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_what_may_be_the_mean_of_two_is_no_lone_row() -> None:
    """Where counts are not told, half a sum of even words looks like a row of one rater."""
    federation = opposed(6, rows=[*6 * [[0]], [0, 1], [0, 1]], levels=STARS)
    users, sums = federation.users, federation.sums._replace(counted=False)
    sums.vectors[6:8] = 0.0
    sums.counts[6] = 1
    sums.rows[6], sums.rows[7] = 0.5 * users[0] + users[1], 4 * users[0] + 2 * users[1]
    found = decode(sums)
    certain = {row: rating for (_, row), (rating, sure) in found.ties.items() if sure}
    assert set(certain) == set(range(6)), "three stars of the first one, and the half twice"


@pytest.mark.claim("indistinguishable-stay-unnamed")
def test_rows_that_repeat_each_other_are_whole_together() -> None:
    """Where counts are not told: sums of the same two, rated alike, in a coarse ring."""
    codec = FixedPoint(bits=32, fraction_bits=16, clip=16.0)
    federation = opposed(7, rows=12 * [[0, 1]], levels=ONE, codec=codec)
    sums = federation.sums._replace(counted=False)
    sums.counts[:12] = 1
    sums.rows[:12] = np.rint(sums.rows[:12] / codec.resolution / 2) * codec.resolution
    assert not any(sure for _, sure in decode(sums).ties.values())


# --- what is planted is found ---------------------------------------------------------------------


CROWD = [
    [int(c) for c in np.random.default_rng([i, 1]).choice(200, 30, replace=False)]
    for i in range(80)
]


def exposed(federation: Federation, found: Decoded) -> set[int]:
    right, wrong = federation.judged(found)
    assert wrong == 0
    return {client for client, _ in right}


@pytest.mark.parametrize("planted", [1, 3, 10])
@pytest.mark.parametrize("levels", [ONE, STARS], ids=["implicit", "stars"])
@pytest.mark.parametrize("bound", [True, False])
def test_lone_clients_are_found(planted: int, levels: FloatArray, bound: bool) -> None:
    """Two rows of one rater each, among sums over crowds."""
    lone = [[client] for client in range(planted) for _ in range(3)]
    federation = Federation(
        [*lone, *CROWD], clients=200, width=8, seed=planted, levels=levels, bound=bound
    )
    assert exposed(federation, decode(federation.sums)) == set(range(planted))


@pytest.mark.parametrize("planted", [1, 3, 10])
def test_pairs_are_found(planted: int) -> None:
    """Items of the same two raters, confirmed by other items of theirs."""
    rows = []
    for number in range(planted):
        one, two, three, four = (4 * number + k for k in range(4))
        rows += 4 * [[one, two]] + 4 * [[three, four]] + [[one, three], [two, four]]
    federation = Federation([*rows, *CROWD], clients=200, width=20, seed=planted)
    assert exposed(federation, decode(federation.sums)) == set(range(4 * planted))


@pytest.mark.claim("known-seed")
@pytest.mark.parametrize("levels", [ONE, STARS], ids=["implicit", "stars"])
def test_sums_over_no_more_known_clients_than_values_are_solved(levels: FloatArray) -> None:
    """Without a search: all who rated what is one linear system a row."""
    rng = np.random.default_rng(0)
    rows = drawn(rng, 40, rng.integers(1, 41, 30).tolist())
    federation = Federation(rows, clients=40, width=40, seed=1, levels=levels)
    known = [(vector, 1e-15) for vector in federation.users]
    right, wrong = federation.judged(decode(federation.sums, known, budget=0.0))
    assert (len(right), wrong) == (sum(map(len, rows)), 0)
    # Who is not known is nobody else: with one of them unknown, rows of the others are left.
    right, wrong = federation.judged(decode(federation.sums, known[1:], budget=0.0))
    assert wrong == 0
    assert len(right) >= sum(len(each) for each in rows if 0 not in each)


@pytest.mark.claim("certain-is-right")
@pytest.mark.parametrize("planted", [1, 3, 10])
def test_known_vectors_propagate(planted: int) -> None:
    """A client without a row of its own shares one with each of two who have some."""
    rows = []
    for number in range(planted):
        one, two, hidden = (3 * number + k for k in range(3))
        rows += [[one], [one], [two], [two], [one, hidden], [two, hidden]]
    federation = Federation([*rows, *CROWD], clients=200, width=8, seed=planted)
    assert exposed(federation, decode(federation.sums)) == set(range(3 * planted))


@pytest.mark.parametrize("planted", [1, 3, 10])
@pytest.mark.parametrize("raters", [2, 3, 4, 5])
@pytest.mark.parametrize("levels", [ONE, STARS], ids=["implicit", "stars"])
def test_subsets_of_known_vectors_are_found(planted: int, raters: int, levels: FloatArray) -> None:
    rng = np.random.default_rng([planted, 1])
    rows = drawn(rng, 12, [raters] * planted)
    federation = Federation([*rows, *CROWD], clients=200, width=12, seed=planted, levels=levels)
    known = [(each, 1e-15) for each in federation.users[:12]]
    found = decode(federation.sums, known)
    right, wrong = federation.judged(found)
    assert wrong == 0
    assert right == {(client, row) for row, own in enumerate(rows) for client in own}


@pytest.mark.claim("certain-is-right")
def test_what_a_vector_was_made_to_fit_is_no_evidence_for_it() -> None:
    """Of several readings of two rows, two agree on any third row in the plane of both."""
    rng = np.random.default_rng([378034199, 1])
    federation = Federation(
        drawn(rng, 60, rng.integers(2, 6, 60).tolist()),
        clients=60,
        width=12,
        seed=378034199,
        levels=STARS,
        size=0.3,
        codec=FixedPoint(bits=32, fraction_bits=16, clip=16.0),
        bound=False,
    )
    _, wrong = federation.judged(decode(federation.sums, budget=2.0**18))
    assert wrong == 0


def test_rows_are_evidence_for_vectors_that_were_made_without_them() -> None:
    """Unless the vector, or that of the other rater of these rows, is certain by others."""
    found = Decoded()
    entries = [Entry(found.add([]), np.ones(2), 0.1, frozenset({3}), mate) for mate in (1, 0)]
    assert found.evident(entries, 3).tolist() == [False, False]
    assert found.evident(entries, 4).tolist() == [True, True]
    found.settle(0, entries[0])
    assert found.evident(entries, 3).tolist() == [True, True]


@pytest.mark.parametrize("levels", [ONE, STARS], ids=["implicit", "stars"])
def test_sums_of_many_known_vectors_are_reduced(levels: FloatArray) -> None:
    """A floor of five: too many subsets to try, and few beside the bits of a row."""
    pytest.importorskip("flint")
    rng = np.random.default_rng([0, 1])
    rows = drawn(rng, 20, rng.integers(5, 12, 30).tolist())
    federation = Federation([*rows, *CROWD], clients=200, width=20, seed=0, levels=levels)
    known = [(each, 1e-15) for each in federation.users[:20]]
    right, wrong = federation.judged(decode(federation.sums, known, budget=2.0**18))
    assert wrong == 0
    assert len(right) >= 0.9 * sum(map(len, rows))
    assert not decode(federation.sums).ties
