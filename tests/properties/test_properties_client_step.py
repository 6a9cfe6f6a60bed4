"""What a client-step check says, refuses, reads and leaves behind."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import seeded_torch
from secure_fedrec.errors import ConfigError, SplitPersonalizationError
from secure_fedrec.properties import assert_client_step, check_client_step
from secure_fedrec.properties.client_step.contents import Sent
from secure_fedrec.properties.client_step.copies import find_copies, find_integers
from secure_fedrec.properties.client_step.interference import ALL_KINDS
from secure_fedrec.properties.client_step.standing import find_standing
from secure_fedrec.properties.split.relations import RELATIONS
from secure_fedrec.properties.split.scales import KINDS
from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    USERS,
    Arguments,
    Engine,
    Factors,
    check,
    data,
    engine,
    factors,
    first_items,
    sending,
    verdict,
)
from tests.properties.client_zoo_broken import BIAS, uploads_all_but
from tests.properties.client_zoo_others import Aliased, FirstSeen, Neighbour


def test_a_violation_names_what_left_and_where_it_stands() -> None:
    given = engine(uploads_all_but("affine_output.weight"))()
    report = check(given, trials=1)
    first = next(each for each in report.violations if each.kind == "value")
    assert (first.parameter, first.owner, first.reader) == (BIAS, 0, None)
    assert (
        first.reaches == "its value after training stands in 'affine_output.bias', from number 0 on"
    )
    assert str(report).startswith("client step: refuted (1 random trials, 3 clients; private: ")
    with pytest.raises(SplitPersonalizationError, match="client 0's 'affine_output"):
        assert_client_step(**given, users=range(USERS), trials=1)


def test_a_factor_is_told() -> None:
    hidden = sending(lambda made, user, items: {"items": [items, -3 * made.own[user]["vector"]]})
    report = check(hidden(), trials=1, uploads=("items.*",))
    assert "-3 x its value after training stands in 'items.1', from number 0 on" in str(report)


def test_who_reads_and_who_writes_is_named() -> None:
    read = check(factors(FirstSeen)(), trials=1).violations[0]
    assert read.kind == "reads"
    assert read.owner != read.reader
    assert "moves when that client has trained before" in read.reaches
    written = {
        (each.owner, each.reader) for each in check(factors(Neighbour)(), trials=1).violations
    }
    assert written == {(1, 0), (2, 1), (0, 2)}


def test_one_memory_is_told_before_anybody_trains() -> None:
    report = check({**engine(Aliased)(), "train": lambda _user: 1 / 0})
    assert {each.reaches for each in report.violations} == {"both share memory"}
    assert {(each.owner, each.reader) for each in report.violations} == {(0, 2), (1, 2)}


class Gradient(Factors):
    """Sends the gradient of the items: rows that are multiples of one's own vector."""

    def fit(self, user: int) -> Tensor:
        own, gradient = self.own[user], torch.zeros_like(self.items)
        for place, rating in zip(*data(user), strict=True):
            gradient[place] += (self.items[place] @ own["vector"] + own["bias"] - rating) * own[
                "vector"
            ]
        super().fit(user)
        return gradient


def test_the_direction_of_a_vector_is_advice() -> None:
    report = check(factors(Gradient)(), trials=1)
    assert verdict(report) == "holds"
    assert "the direction of client 0's 'vector' can be read off" in str(report)


def test_everything_is_put_back() -> None:
    made = Engine()
    made.client_model_params[1]["affine_output.weight"].fill_(7.0)
    before = copy.deepcopy(made.client_model_params)
    items = made.server_model_param[ITEM_TABLE].clone()
    random.seed(1)
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    given = engine()()
    report = check(
        {**given, "train": made.train, "clients": lambda u: made.client_model_params[u]}, 1
    )
    assert verdict(report) == "holds"
    for user, state in before.items():
        for name, value in state.items():
            assert torch.equal(value, made.client_model_params[user][name])
    assert torch.equal(items, made.server_model_param[ITEM_TABLE])
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[1].tolist() == states[2]  # type: ignore[index] # noqa: NPY002


def test_a_trial_is_a_function_of_its_seed() -> None:
    one, other, third = (check(factors(FirstSeen)(), 1, seed=seed) for seed in (4, 4, 5))
    assert str(one) == str(other) != str(third)


@pytest.mark.parametrize(
    "draw",
    [random.random, np.random.random, lambda: float(torch.rand(()))],
    ids=["random", "NumPy", "torch"],
)
def test_what_a_step_draws_is_a_function_of_the_seed(draw: Callable[[], float]) -> None:
    def send(made: Factors, user: int, items: Tensor) -> object:
        return {"items": torch.cat([items, (2 + draw()) * made.own[user]["vector"][None]])}

    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        with seeded_torch(seed):
            found.append(str(check(sending(send)(), 1)))
    assert " x its value after training" in found[0]
    assert found[0] == found[1]


def test_nine_trials_meet_every_kind_of_value() -> None:
    seen = [ALL_KINDS[(2 * seed + place) % len(ALL_KINDS)] for seed in range(9) for place in (0, 1)]
    assert set(seen) == set(ALL_KINDS)
    assert {*KINDS, *RELATIONS} == set(ALL_KINDS)


def test_clients_may_have_any_names() -> None:
    made = Factors()
    made.own = {name: made.own[user] for user, name in enumerate("abc")}  # type: ignore[misc]
    fit = {name: user for user, name in enumerate("abc")}

    def train(name: str) -> object:
        mine = made.own[name]["vector"]  # type: ignore[index]
        items, ratings = data(fit[name])
        mine -= 0.1 * ((first_items()[items] @ mine) - ratings) @ first_items()[items]
        return {"items": first_items() + 0.1 * mine.sin()}

    given: Arguments = {"train": train, "clients": lambda name: made.own[name], "private": "vector"}
    assert verdict(check({**given, "uploads": "items"}, 2, users="abc")) == "holds"


def test_the_servers_state_is_put_back_before_every_training() -> None:
    class Averaging(Engine):
        def train(self, user: int) -> object:
            sent: Any = super().train(user)
            self.server_model_param = copy.deepcopy(sent)
            return sent

    assert verdict(check(engine(Averaging)(), 1)) == "holds"
    assert verdict(check(engine(Averaging, downloads=None)(), 1)) == "refuted"


def test_single_numbers_that_the_server_gives_are_not_moved() -> None:
    made, settings = Factors(), {"rate": 0.05}

    def train(user: int) -> object:
        assert settings["rate"] == 0.05
        settings["rate"] *= 0.9  # a schedule by the round
        return made.train(user)

    given = {**factors()(), "train": train, "clients": lambda user: made.own[user]}
    assert verdict(check({**given, "downloads": settings}, 1)) == "holds"


def test_a_private_value_that_is_only_read_is_tested() -> None:
    class Frozen(Factors):
        def fit(self, user: int) -> Tensor:
            bias = self.own[user]["bias"].clone()
            items = super().fit(user)
            self.own[user]["bias"].copy_(bias)
            return items

    assert verdict(check(factors(Frozen)(), 1)) == "holds"


def test_what_a_client_keeps_is_compared() -> None:
    class Kept(Factors):
        """What others have ended with moves a client's bias, once all is sent."""

        def sent(self, user: int, items: Tensor) -> object:
            ends = self.__dict__.setdefault("ends", {})
            self.own[user]["bias"] += 0.01 * sum(
                end for other, end in ends.items() if other != user
            )
            ends[user] = float(self.own[user]["vector"].sum())
            return {"items": items}

    report = check(factors(Kept)(), 1)
    assert {(each.kind, each.parameter) for each in report.violations} == {("reads", "vector")}
    assert "its own 'bias' moves when that client has trained before" in str(report)


def test_a_copy_of_a_state_is_refused() -> None:
    made = Factors()
    given = {**factors()(), "train": made.train, "clients": lambda u: copy.deepcopy(made.own[u])}
    with pytest.raises(ConfigError, match="give its live state, not a copy"):
        check(given)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"private": ("nothing",)}, "private"),
        ({"private": ()}, "private, uploads"),
        ({"uploads": (3,)}, "private, uploads"),
        ({"users": [0]}, "users"),
        ({"users": [0, 0, 1]}, "users"),
        ({"users": range(4)}, "clients"),
        ({"trials": 0}, "trials, seed, scale"),
        ({"scale": float("inf")}, "trials, seed, scale"),
        ({"train": None}, "train"),
        ({"clients": lambda _user: {"vector": torch.ones(DIM), "bias": torch.ones(1)}}, "clients"),
        ({"clients": lambda _user: {"vector": 1.0}.items()}, "private"),
    ],
)
def test_what_cannot_be_checked_is_refused(changes: Arguments, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(factors()(), **changes)
    assert refused.value.key == key


def test_users_of_one_model_are_numbered() -> None:
    from tests.properties.client_zoo import table
    from tests.properties.client_zoo_honest import by_hand

    with pytest.raises(ConfigError, match="are numbered from 0 to 2"):
        check(table(by_hand)(), users=range(4))


def test_what_a_step_raises_by_itself_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        check({**factors()(), "train": lambda _user: 1 / 0})


def test_a_step_that_fails_by_others_is_refuted() -> None:
    class Failing(Factors):
        def fit(self, user: int) -> Tensor:
            if any(float(self.own[other]["vector"].norm()) > 50 for other in self.own):
                raise ValueError("too large")
            return super().fit(user)

    assert {each.kind for each in check(factors(Failing)(), 1).violations} == {"reads"}


def test_a_variable_of_a_closure_may_be_unset() -> None:
    made = Factors()
    seen: int

    def train(user: int) -> object:
        nonlocal seen
        seen = user
        return made.train(user)

    given = factors()()
    report = check({**given, "train": train, "clients": lambda user: made.own[user]}, 1)
    assert verdict(report) == "holds"
    cells = dict(zip(train.__code__.co_freevars, train.__closure__ or (), strict=True))
    with pytest.raises(ValueError, match="empty"):  # put back to that
        _ = cells["seen"].cell_contents
    seen = 0


def test_leaves_of_anything_are_found() -> None:
    sent = Sent.of(
        [
            ("a", torch.ones(2)),
            ("b", {1: np.arange(3.0)[::-1], "1": [1, 2.5]}),
            ("c", (True, None, "x", b"y", np.array("z"))),
            ("d", torch.eye(2).to_sparse()),
            ("e", torch.ones(2).to(torch.float8_e4m3fn)),
        ]
    )
    assert list(sent.numbers) == ["a", "b.1", "b.1'", "c.0", "d", "e"]
    assert all(bool(value.isfinite().all()) for value in sent.numbers.values())
    assert torch.equal(sent.numbers["b.1"], torch.tensor([2.0, 1.0, 0.0]).double())
    assert sent.texts == {"c.1": "None", "c.2": "'x'"}
    assert sent.unknown == {"c.3": "bytes", "c.4": "ndarray"}


@pytest.mark.parametrize("width", [1, 3, 4, 8, 33])
def test_a_row_is_found_and_noise_is_not(width: int) -> None:
    draw = torch.Generator().manual_seed(width)
    private = [torch.randn(5, width, generator=draw) for _ in range(12)]
    noise = [torch.randn(3000, generator=draw) for _ in range(12)]
    assert find_standing([{"a": each} for each in noise], private, private) is None
    sent = [
        {"a": torch.cat([each, -0.5 * row[3].half().float()])}
        for each, row in zip(noise, private, strict=True)
    ]
    if width > 1:  # a column counts as one row
        found = find_standing(sent, private, private)
        assert found is not None
        assert found.factor == pytest.approx(-0.5, rel=1e-3)
        assert 3000 <= found.place < 3000 + width


def draws(*shape: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(len(shape))
    return [torch.randn(shape, generator=draw) for _ in range(12)]


@pytest.mark.parametrize(
    ("shape", "hide"),
    [
        ((32,), lambda own: own[3:11]),
        ((20, 8), lambda own: own.T.flatten()),
        ((2, 6, 5), lambda own: own.permute(2, 1, 0).flatten()),
        ((20, 8), lambda own: own / own.norm()),
        ((3, 3), lambda own: own / own.norm(dim=1, keepdim=True)),
        ((5, 8), lambda own: own / own.abs().max()),
        ((20, 8), lambda own: (own / own.abs().max() * 127).round().to(torch.int8)),
        ((20, 8), lambda own: ((own + 4) * 25).round().clamp(0, 255).to(torch.uint8)),
        ((8,), lambda own: torch.cat([torch.zeros(7).byte(), own.view(torch.uint8)])),
        ((8,), lambda own: torch.cat([torch.zeros(5).byte(), own.double().view(torch.uint8)])),
        ((4, 6), lambda own: torch.stack([torch.ones(6), own[2], torch.ones(6)]).T),
    ],
)
def test_a_form_that_can_be_undone_is_found(
    shape: tuple[int, ...], hide: Callable[[Tensor], Tensor]
) -> None:
    private = draws(*shape)
    found = find_standing([{"a": hide(each)} for each in private], private, private)
    assert found is not None
    assert found.factor is not None
    other = draws(*shape, 1)
    assert find_standing([{"a": hide(each[..., 0])} for each in other], private, private) is None


def test_numbers_of_few_bits_are_rounded() -> None:
    private = draws(20, 8)
    sent = [{"a": (each * 20).round() / 20} for each in private]
    assert find_standing(sent, private, private) is None
    found = find_standing(sent, private, private, quantized={"a"})
    assert found is not None
    assert found.factor == pytest.approx(1.0, rel=1e-2)


def test_what_was_given_is_taken_off() -> None:
    private, given = draws(6, 4), draws(6, 4, 1)
    downloaded = [{"w": each[..., 0], "v": each[..., 0].tanh()} for each in given]
    sent = [
        {"model.w": d["w"] - 0.1 * own, "row": d["v"][2] + own[3]}
        for d, own in zip(downloaded, private, strict=True)
    ]
    for path, factor in (("model.w", -0.1), ("row", 1.0)):
        found = find_standing([{path: each[path]} for each in sent], private, private, downloaded)
        assert found is not None
        assert found.factor == pytest.approx(factor, rel=1e-4)
        assert find_standing([{path: each[path]} for each in sent], private, private) is None


def test_copies_are_found_at_any_place_and_time() -> None:
    private, noise = draws(7, 5), draws(60, 1, 1)
    sent = [
        {"a": torch.cat([each[: 5 * number, 0, 0], -own[number % 7], each[:9, 0, 0]])}
        for number, (each, own) in enumerate(zip(noise, private, strict=True))
        if number % 2
    ]
    rest = [{"a": each[:, 0, 0]} for each in noise[: 12 - len(sent)]]
    nothing: list[dict[str, Tensor]] = [{}] * 12
    odd = private[1::2] + private[: 12 - len(sent)]
    found = find_copies("its value", sent + rest, odd, nothing)
    assert found is not None
    assert (found.place, found.trainings) == (5, len(sent))
    assert str(found) == "its value stands in 'a', from number 5 on, in 6 of 12 trainings"
    known = [{"w": each.reshape(-1)} for each in odd]
    assert find_copies("its value", sent + rest, odd, known) is not None  # negated: not as given
    assert find_copies("its value", sent + rest, odd, [{"w": -k["w"]} for k in known]) is None
    equal = [torch.ones(8)] * 12
    assert find_copies("its value", [{"a": each} for each in equal], equal, nothing) is None


def test_integers_are_found_times_any_number() -> None:
    own = torch.tensor([0, 3, 3, 1, 20, *range(40)])
    for sent in (own, own.flip(0).flip(0).float() / 7, -2.0 * own):
        (found,) = find_integers(
            [{"b": torch.ones(50), "a": torch.cat([torch.ones(9), sent])}] * 2, own
        )
        assert found[:2] == ("a", 9)
        assert found.bits > 100
    for other in (own + 1, own.flip(0), torch.cat([own[:-1], own[:1]])):
        assert find_integers([{"a": other}, {"a": other}], own) == []
    assert find_integers([{"a": own}, {"a": own * 2.0}], own) == []


def test_integers_that_stand_somewhere_by_chance_are_told_by_their_bits() -> None:
    own = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0])
    (alone,) = find_integers([{"a": own}], own)
    assert alone.bits == 8
    draw = torch.Generator().manual_seed(0)
    touched = (torch.rand(3000, generator=draw) < 0.5).float()
    found = find_integers([{"a": touched * 0.01}], own)
    assert 3 <= len(found) <= 30
    assert all(7 < each.bits < 9 for each in found)
    (history,) = find_integers([{"a": torch.tensor([7, 31, 2, 40])}], torch.tensor([7, 31, 2, 40]))
    assert history.bits > 20


def test_one_row_of_a_large_table_is_found() -> None:
    draw = torch.Generator().manual_seed(1)
    private = [torch.randn(5000, 32, generator=draw) for _ in range(12)]
    sent = [{"a": torch.cat([torch.ones(5), each[4321], torch.ones(5)])} for each in private]
    found = find_standing(sent, private, private)
    assert found is not None
    assert (found.path, found.place) == ("a", 5)


def test_a_row_is_found_in_a_weighted_sum_with_a_row_of_what_was_given() -> None:
    private, given = draws(6, 8), draws(10, 8, 1)
    downloaded = [{"w": each[..., 0]} for each in given]

    def sent(row: int, weight: float, times: float) -> list[dict[str, Tensor]]:
        tables = [each["w"].clone() for each in downloaded]
        for table, own in zip(tables, private, strict=True):
            table[row] = weight * table[row] + times * own[2]
        return [{"w": each} for each in tables]

    for weight, times in ((0.7, 1.0), (0.5, 0.5), (1.0, -0.1), (-2.0, 3.0)):
        found = find_standing(sent(3, weight, times), private, private, downloaded)
        assert found is not None
        assert found.place == 3 * 8
        assert found.factor == pytest.approx(times, rel=1e-4)
    assert find_standing(sent(3, 0.7, 0.0), private, private, downloaded) is None


def test_less_than_a_row_is_found_on_top_of_what_was_given() -> None:
    private, given = draws(32), draws(10, 16, 1)
    downloaded = [{"w": each[..., 0]} for each in given]
    tables = [each["w"].clone() for each in downloaded]
    for table, own in zip(tables, private, strict=True):
        table[3, 2:12] += own[5:15]
    sent = [{"w": each} for each in tables]
    found = find_standing(sent, private, private, downloaded)
    assert found is not None
    assert found.factor == pytest.approx(1.0)
    assert find_standing(sent, private, private) is None


def test_a_column_is_found_in_a_mean_with_what_was_given() -> None:
    private, given = draws(8, 1), draws(8, 1, 1)
    downloaded = [{"w": each[..., 0]} for each in given]
    sent = [{"w": (each["w"] + own) / 2} for each, own in zip(downloaded, private, strict=True)]
    found = find_standing(sent, private, private, downloaded)
    assert found is not None
    assert found.factor == pytest.approx(0.5)


def test_a_form_without_information_is_no_evidence() -> None:
    draw = torch.Generator().manual_seed(0)
    # Over their range, two numbers of which one is always larger differ by one.
    private = [
        torch.tensor([3.0, 1.0]) * (0.3 * torch.randn(2, generator=draw)).exp() for _ in range(12)
    ]
    sent = [{"a": torch.tensor([3, 5, 8]), "b": torch.tensor([0.5, 1.5, 3.5])}] * 12
    assert find_standing(sent, private, private) is None


def test_a_number_that_varies_less_than_integers_are_rounded_is_no_evidence() -> None:
    generator = torch.Generator().manual_seed(0)
    for spread in (0.03, 0.05, 0.07):
        own = [1 + spread * (2 * torch.rand(1, generator=generator) - 1) for _ in range(12)]
        assert find_standing([{"n": torch.tensor([96])}] * 12, own, own) is None


def test_any_four_numbers_in_a_row_are_copies() -> None:
    private, nothing = draws(8), list[dict[str, Tensor]]([{}] * 12)
    for start in range(5):
        sent = [{"a": each[start : start + 4]} for each in private]
        assert find_copies("its value", sent, private, nothing) is not None


def test_zeros_and_constants_are_no_evidence() -> None:
    same = [torch.tensor([1.0, 2.0, 3.0])] * 12
    assert find_standing([{"a": each} for each in same], same, same) is None


@pytest.mark.parametrize(
    "made_of",
    [
        lambda noise: noise.sign() * 0.01,  # one step of Adam
        lambda noise: (noise * 8).exp(),  # one training has nearly all
        lambda noise: (noise * 100).exp() * noise.sign(),
        lambda noise: 5 + 1e-3 * noise,  # hardly another one
        lambda noise: noise * (noise > 1.2),  # mostly zero
    ],
)
@pytest.mark.parametrize("numbers", [1, 2])
def test_what_agrees_by_chance_is_no_evidence(
    made_of: Callable[[Tensor], Tensor], numbers: int
) -> None:
    generator = torch.Generator().manual_seed(numbers)
    private, sent = (
        [made_of(torch.randn(size, generator=generator).double()) for _ in range(12)]
        for size in (numbers, 20_000)
    )
    rows = [{"a": each, "b": each.char(), "c": each[:numbers]} for each in sent]
    downloaded = [{"c": each[-numbers:]} for each in sent]
    assert find_standing(rows, private, private, downloaded, {"b"}) is None


@pytest.mark.parametrize(("sent_alone", "clients"), [(False, 3), (True, 3), (True, 1)])
def test_integers_that_may_stand_by_chance_are_advice(sent_alone: bool, clients: int) -> None:
    """A private group, one of seven, beside the signs of a public array; or sent by some."""
    generator = torch.Generator().manual_seed(0)
    touched = {user: (torch.rand(300, generator=generator) < 0.1).long() for user in range(3)}
    states = {user: {"group": torch.eye(7).long()[user], "own": torch.ones(4)} for user in range(3)}

    def train(user: int) -> dict[str, Tensor]:
        own = states[user]
        own["own"] = own["own"] * 0.9 + 0.1
        sent = {"touched": touched[user]}
        group = own["group"] if user < clients else torch.zeros(7).long()
        return {**sent, "group": group} if sent_alone else sent

    report = check_client_step(
        train,
        clients=lambda user: states[user],
        private=("own", "group"),
        uploads=("touched", "grouped"),
        users=range(3),
    )
    values = [each for each in report.violations if each.kind == "value"]
    assert len(values) == (3 if sent_alone and clients == 3 else 0), report
    coincidences = [each for each in report.advice if "may be a coincidence" in each]
    assert coincidences or values, report


@pytest.mark.parametrize("alike", [False, True])
def test_clients_with_the_same_integers_are_one_coincidence(alike: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    masks = (torch.rand(4, 12, generator=generator) < 0.5).long()
    numbers = [0, 0, 1] if alike else [0, 2, 1]
    states = {
        user: {"mask": masks[numbers[user]].clone(), "own": torch.ones(4)} for user in range(3)
    }

    def train(user: int) -> dict[str, Tensor]:
        states[user]["own"] = states[user]["own"] * 0.9 + 0.1
        mask = states[user]["mask"] if user < 2 else masks[3]
        return {"a": torch.cat([torch.zeros(100).long(), torch.ones(100).long(), mask])}

    report = check_client_step(
        train,
        clients=lambda user: states[user],
        private=("own", "mask"),
        uploads=("a",),
        users=range(3),
    )
    assert len(report.violations) == (0 if alike else 2), report
    assert any("may be a coincidence" in each for each in report.advice) == alike
