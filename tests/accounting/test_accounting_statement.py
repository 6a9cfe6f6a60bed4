"""A claim says what it covers, and is not made where something exact leaves beside the noise."""

import math
from collections.abc import Callable

import pytest

from secure_fedrec.accounting import (
    PrivacyStatement,
    claim,
    find_noise_multiplier,
    gaussian_events,
    skellam_events,
)
from secure_fedrec.accounting.accountants import spend
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    DirectNoiseConfig,
    Event,
    GaussianNoise,
    Part,
    RandomAnswer,
    Sampling,
    SkellamConfig,
)

Make = Callable[..., Event]


def skellam_config(**changes: object) -> SkellamConfig:
    counts = changes.pop("counts", "noised")
    layout = Contribution(
        parts=(
            Part(name="rows", size=200),
            Part(name="counts", size=50, scale=0.1, release=counts),  # type: ignore[arg-type]
        )
    )
    fields: dict[str, object] = {
        "encoding": BoundedEncoding(contribution=layout, clip=1.0, fraction_bits=10),
        "noise_multiplier": 2.0,
        "ring_bits": 24,
        "cohort": 40,
        "min_survivors": 30,
        "corrupt": 4,
        **changes,
    }
    return SkellamConfig(**fields)  # type: ignore[arg-type]


def test_claim_prints_everything_it_depends_on() -> None:
    events = skellam_config().events(rounds=20)
    text = str(claim(events, adversary="server", delta=1e-5))
    for needle in (
        "epsilon_server = ",
        "at delta = 1e-05",
        "over 20 rounds",
        "against: the server, which sees the cohort",
        "one client's whole contribution to a round (rows, counts)",
        "zero-out",
        "Skellam noise, standard deviation 2 x L2 sensitivity, 20 times, q = 1",
        "Renyi, order ",
        "total variation",
        "some result is wrong with probability at most 2^-",
        "assuming: only sums over at least 30 clients are opened",
        "assuming: at most 4 of them collude",
        "assuming: each upload is hidden inside the sum",
    ):
        assert needle in text, needle


def test_server_and_release_have_prices_of_their_own(event: Make) -> None:
    noise = GaussianNoise(multiplier=2.0, form="rounded")
    sampling = Sampling(rate=0.05, secret_from=("release",))
    events = [event(noise, rounds=20, sampling=sampling, participation="hidden")]
    server = claim(events, adversary="server", delta=1e-5)
    release = claim(events, adversary="release", delta=1e-5)
    assert release.epsilon < server.epsilon / 3
    assert "q = 1" in str(server)
    assert "q = 0.05" in str(release)
    assert "epsilon_release" in str(release)
    assert "sees only what is released" in str(release)


@pytest.mark.claim("dp-no-wrap")
@pytest.mark.parametrize("adversary", ["server", "release"])
def test_exact_counts_beside_noised_rows_get_no_claim(adversary: str) -> None:
    events = skellam_config(counts="exact").events(rounds=20)
    with pytest.raises(ConfigError, match=r"counts\.release = 'exact'"):
        claim(events, adversary=adversary, delta=1e-5)  # type: ignore[arg-type]
    # The noised part alone could be priced: it is the exact one that is refused.
    assert claim(events[:1], adversary="server", delta=1e-5).epsilon > 0


def test_exact_parts_of_direct_noise_get_no_claim() -> None:
    layout = Contribution(
        parts=(Part(name="rows", size=4), Part(name="weight", size=1, release="exact"))
    )
    config = DirectNoiseConfig(
        encoding=BoundedEncoding(contribution=layout, clip=1.0, fraction_bits=4),
        noise="rounded-gaussian",
        noise_multiplier=1.0,
        place="local",
        ring_bits=24,
        cohort=3,
    )
    with pytest.raises(ConfigError, match=r"weight\.release"):
        claim(config.events(rounds=1), adversary="server", delta=1e-5)


def test_central_noise_claims_nothing_against_the_server(event: Make) -> None:
    events = [
        event(GaussianNoise(multiplier=1.0, form="rounded"), noised_against=("release",)),
    ]
    assert claim(events, adversary="release", delta=1e-5).epsilon > 0
    with pytest.raises(ConfigError, match="without the noise"):
        claim(events, adversary="server", delta=1e-5)


def test_prices_of_different_changes_are_not_added(event: Make) -> None:
    events = [
        event(GaussianNoise(multiplier=1.0, form="rounded")),
        event(RandomAnswer(epsilon=1.0), adjacency="one-bit"),
    ]
    with pytest.raises(ConfigError, match="different changes"):
        claim(events, adversary="server", delta=1e-5)


def test_failures_and_distances_add_up_over_rounds(event: Make) -> None:
    mechanism = GaussianNoise(multiplier=4.0, form="rounded")
    events = [
        event(mechanism, rounds=8, wrap=2.0**-42, distance=2.0**-60),
        event(mechanism, rounds=8, wrap=2.0**-42, distance=2.0**-60),
    ]
    statement = claim(events, adversary="server", delta=1e-5)
    assert statement.wrap == 2.0**-38
    assert statement.spent.distance == 2.0**-56
    assert statement.rounds == 8
    assert "at most 2^-38.0" in str(statement)
    assert "within 2^-56.0" in str(statement)


def test_a_release_that_serves_many_rounds_is_paid_once(event: Make) -> None:
    noise = GaussianNoise(multiplier=4.0, form="rounded")

    def stated(**times: int) -> PrivacyStatement:
        return claim([event(noise, **times)], adversary="server", delta=1e-5)

    statement = stated(rounds=1, serves=30)
    assert statement.rounds == 30
    assert "over 30 rounds" in str(statement)
    assert statement.epsilon == stated(rounds=1).epsilon < stated(rounds=30).epsilon
    with pytest.raises(ConfigError, match=r"dp\.serves"):
        event(noise, rounds=3, serves=2)


def test_statement_names_its_accountant() -> None:
    events = gaussian_events(2.0, rounds=1)
    text = str(claim(events, adversary="server", delta=1e-5, accountant="prv"))
    assert "accountant: PRV (Opacus)" in text
    assert "over 1 round\n" in text
    pure = Event(
        mechanism=RandomAnswer(epsilon=0.5),
        covers="whether one client rated one item",
        adjacency="one-bit",
        noised_against=("server", "release"),
    )
    assert "sum of the pure epsilons" in str(claim([pure], adversary="server", delta=1e-9))


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_multiplier_for_a_budget_meets_it_and_hardly_more(accountant: str) -> None:
    def price(multiplier: float) -> float:
        events = gaussian_events(multiplier, rounds=50)
        return spend(
            events,
            adversary="server",
            delta=1e-5,
            accountant=accountant,  # type: ignore[arg-type]
        ).epsilon

    found = find_noise_multiplier(
        lambda multiplier: gaussian_events(multiplier, rounds=50),
        epsilon=3.0,
        delta=1e-5,
        adversary="server",
        accountant=accountant,  # type: ignore[arg-type]
    )
    assert price(found) <= 3.0 < price(found * 0.998)


def test_multiplier_found_for_skellam_makes_a_configuration_within_budget() -> None:
    encoding = skellam_config().encoding
    found = find_noise_multiplier(
        lambda multiplier: skellam_events(multiplier, encoding, rounds=30),
        epsilon=8.0,
        delta=1e-5,
        adversary="server",
    )
    events = skellam_config(noise_multiplier=found).events(rounds=30)
    assert 7.9 < claim(events, adversary="server", delta=1e-5).epsilon <= 8.0


def test_small_multipliers_are_found_too() -> None:
    found = find_noise_multiplier(
        lambda multiplier: gaussian_events(multiplier, rounds=1),
        epsilon=60.0,
        delta=1e-5,
        adversary="server",
    )
    assert found < 0.5


@pytest.mark.parametrize(
    ("epsilon", "tolerance"), [(0.0, 1e-3), (-1.0, 1e-3), (1.0, 0.0), (1.0, 1e-17), (1.0, math.nan)]
)
def test_budgets_are_positive_and_tolerances_within_reach_of_doubles(
    epsilon: float, tolerance: float
) -> None:
    with pytest.raises(ConfigError, match=r"must be (positive|at least 1e-12)"):
        find_noise_multiplier(
            lambda multiplier: gaussian_events(multiplier, rounds=1),
            epsilon=epsilon,
            delta=1e-5,
            adversary="server",
            tolerance=tolerance,
        )


def test_the_finest_tolerance_ends_the_search() -> None:
    def price(multiplier: float) -> float:
        events = gaussian_events(multiplier, rounds=10)
        return spend(events, adversary="server", delta=1e-5).epsilon

    found = find_noise_multiplier(
        lambda multiplier: gaussian_events(multiplier, rounds=10),
        epsilon=8.0,
        delta=1e-5,
        adversary="server",
        tolerance=1e-12,
    )
    assert price(found) <= 8.0 < price(found * (1 - 1e-11))


# Little noise costs so much that the distance of drawn from named noise has no price any more: on
# the way down from a multiplier of 1 for the large budget, at 1 itself for the many rounds.
@pytest.mark.parametrize(("epsilon", "rounds"), [(1000.0, 30), (8.0, 1500)])
def test_multipliers_without_a_price_do_not_end_the_search(epsilon: float, rounds: int) -> None:
    def events_of(multiplier: float) -> tuple[Event, ...]:
        return skellam_config(noise_multiplier=multiplier).events(rounds=rounds)

    def price(multiplier: float) -> float:
        return spend(events_of(multiplier), adversary="server", delta=1e-5).epsilon

    found = find_noise_multiplier(events_of, epsilon=epsilon, delta=1e-5, adversary="server")
    assert price(found) <= epsilon
    with pytest.raises(ConfigError, match="distance"):
        price(min(1.0, found * 0.99))


def test_events_without_a_price_at_any_noise_are_refused_for_their_own_reason() -> None:
    with pytest.raises(ConfigError, match=r"dp\.delta"):
        find_noise_multiplier(
            lambda multiplier: gaussian_events(multiplier, rounds=1),
            epsilon=1.0,
            delta=2.0,
            adversary="server",
        )


def test_a_budget_that_no_noise_meets_is_refused() -> None:
    with pytest.raises(ConfigError, match="multiplier above"):
        find_noise_multiplier(
            lambda multiplier: gaussian_events(multiplier, rounds=10**9),
            epsilon=1e-6,
            delta=1e-12,
            adversary="server",
        )
