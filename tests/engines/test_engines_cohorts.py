"""Cohorts: drawn by seed and round, without replacement, everybody equally often."""

import numpy as np
import pytest

from secure_fedrec.engines import CohortConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams

N_CLIENTS = 26


def test_cohorts_are_drawn_without_replacement_and_by_seed() -> None:
    config = CohortConfig(clients_per_round=7)
    drawn = [config.draw(round_, N_CLIENTS, Streams.from_seed(1)).tolist() for round_ in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert drawn[0] != config.draw(1, N_CLIENTS, Streams.from_seed(2)).tolist()
    for invited in drawn:
        assert len(set(invited)) == 7
        assert invited == sorted(invited)
        assert 0 <= invited[0] <= invited[-1] < N_CLIENTS
    everybody = CohortConfig().draw(1, N_CLIENTS, Streams.from_seed(1))
    assert everybody.tolist() == list(range(N_CLIENTS))
    full = CohortConfig(clients_per_round=N_CLIENTS).draw(1, N_CLIENTS, Streams.from_seed(1))
    assert full.tolist() == list(range(N_CLIENTS))


def test_rounds_of_everybody_leave_the_others_alone() -> None:
    config = CohortConfig(clients_per_round=7, everybody_in=(2, 4))
    plain, streams = CohortConfig(clients_per_round=7), Streams.from_seed(1)
    for round_ in range(1, 6):
        invited = config.draw(round_, N_CLIENTS, streams).tolist()
        if round_ in {2, 4}:
            assert invited == list(range(N_CLIENTS))
        else:
            assert invited == plain.draw(round_, N_CLIENTS, streams).tolist()
    sizes = [each.largest(N_CLIENTS) for each in (config, plain, CohortConfig())]
    assert sizes == [N_CLIENTS, 7, N_CLIENTS]


@pytest.mark.parametrize(("per_round", "rounds"), [(None, (3,)), (7, (0,)), (7, (3, -1))])
def test_rounds_of_everybody_that_mean_nothing(
    per_round: int | None, rounds: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match=r"cohort\.everybody_in"):
        CohortConfig(clients_per_round=per_round, everybody_in=rounds)


def test_everybody_is_invited_equally_often() -> None:
    config, streams = CohortConfig(clients_per_round=5), Streams.from_seed(3)
    counts = np.zeros(N_CLIENTS)
    for round_ in range(600):
        counts[config.draw(round_, N_CLIENTS, streams)] += 1
    expected, share = 600 * 5 / N_CLIENTS, 5 / N_CLIENTS
    assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected * (1 - share))
