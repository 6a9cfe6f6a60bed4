"""A part of ``make model-check`` that every test run affords, with the same verdicts."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking import MaskingConfig
from tests.model_check.__main__ import main
from tests.model_check.cases import CASES, Case, every_committee, every_setting, search
from tests.model_check.hostile import federation_of
from tests.model_check.replay import Replays, replay
from tests.model_check.settings import RULES, Setting, Tables, mask_of, tables_of
from tests.model_check.sharers import SharerState, opens, search_sharers
from tests.model_check.stories import search_stories

EQUAL = frozenset({"equal sharers"})


@pytest.mark.claim("masking-model-check")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.setting.n <= 10], ids=lambda case: case.title
)
def test_a_rule_that_is_off_lets_exactly_its_attack_in(case: Case) -> None:
    assert search(case.setting, case.model, case.without).attacks == case.attacks
    assert not search(case.safe, case.model).attacks


def test_the_search_misses_no_state() -> None:
    """Each of the labellings of a ring of 6 by itself: as many attacks as the search counts."""
    places = ("corrupt", "dropped", "absent", "inside", "divergent", "outside")
    setting = Setting(n=6, degree=4, threshold=2, corrupt=1, window=2, min_survivors=4, quorum=4)
    for without in (EQUAL, frozenset[str]()):
        tables = tables_of(setting, without)
        corrupt, states, attacks = set(tables.corrupt.tolist()), 0, 0
        for labels in product(range(6), repeat=setting.n):
            sets = [mask_of(at for at in range(6) if labels[at] == each) for each in range(6)]
            if sets[0] not in corrupt:
                continue
            states += 1
            named = dict(zip(places, sets, strict=True))
            state = SharerState(kind="", unknown=0, fakes=False, **named)
            attacks += bool(state.outside) and opens(tables, state)[0]
        found = search_sharers(tables)
        assert found.states == states
        assert sum(found.attacks.values()) == attacks
        assert (attacks > 0) == (without == EQUAL)


def test_every_rule_is_switched_off_somewhere() -> None:
    assert {rule for case in CASES for rule in case.without} == set(RULES)


@pytest.mark.claim("masking-model-check")
def test_nothing_opens_with_all_rules_on() -> None:
    settings = every_setting(range(5, 9))
    states = 0
    for setting in settings:
        found = search(setting, "sharers")
        assert not found.attacks, setting
        states += found.states
    assert len(settings) > 200
    assert states > 90_000_000
    states = 0
    for setting in every_setting(range(5, 8), corrupt=range(3)):
        found = search(setting, "stories")
        assert not found.attacks, setting
        states += found.states
    assert states > 500_000
    states = 0
    for setting in every_committee(range(5, 8)):
        found = search(setting, "stories")
        assert not found.attacks, setting
        states += found.states
    assert states > 15_000_000


def test_a_committee_with_more_corrupt_members_than_its_quorum_withstands_is_no_help() -> None:
    """The event of the proof is as small as it may be: one corrupt member more, and sums open."""
    setting = replace(CASES[14].setting, committee=3, quorum=2)
    assert setting.corrupt == 2 * 2 - 3  # so none may be a member
    tables = tables_of(setting)
    assert not search_stories(tables).attacks
    any_committee = replace(tables, setting=replace(setting, committee=None))
    assert search_stories(any_committee).attacks


def test_thresholds_alone_leave_mixed_cuts_and_no_others() -> None:
    """2t > k + c keeps single victims and groups without a common view apart, and no more."""
    kinds: dict[str, int] = {}
    for setting in every_setting(range(5, 9)):
        k = setting.n - 1 if setting.degree is None else setting.degree
        if 2 * setting.threshold > k + setting.corrupt:
            for kind, count in search(setting, "sharers", EQUAL).attacks.items():
                kinds[kind] = kinds.get(kind, 0) + count
    assert set(kinds) == {"mixed cut"}


def test_complete_graphs_are_safe_as_long_as_sums_are_no_smaller_than_the_quorum() -> None:
    found = 0
    for setting in every_setting(range(5, 9)):
        if setting.degree is not None:
            continue
        assert not search(setting, "sharers", EQUAL).attacks
        loose = replace(setting, min_survivors=setting.quorum - 1)
        with pytest.raises(ConfigError):
            loose.config()
        found += bool(search(loose, "sharers", EQUAL).attacks)
    assert found >= 3


@pytest.mark.claim("masking-model-check")
def test_the_model_and_real_clients_agree_on_attacks() -> None:
    played = Replays()
    for case in CASES:
        if case.setting.n <= 9:
            played.play(case, most=3)
    assert not played.wrong
    assert played.states >= 30
    assert played.opened == played.held == played.states


@pytest.mark.parametrize(
    ("predicate", "weak", "setting", "model"),
    [
        ("share_due", lambda *, survives, **_: "self" if survives else "mask", 0, "sharers"),
        ("topology.windows_hold", lambda *_: True, 7, "sharers"),
        ("is_quorum", lambda *_: True, 11, "stories"),
        ("topology.Topology.signers", lambda _, survivors: survivors, 13, "stories"),
    ],
)
def test_the_model_asks_the_clients_own_predicates(
    monkeypatch: pytest.MonkeyPatch, predicate: str, weak: Any, setting: int, model: str
) -> None:
    """A client's predicate that is weakened, not a switch of the model: the attack is found."""
    home = (
        "secure_fedrec.protection.masking.messages."
        if "." in predicate
        else "tests.model_check.settings."
    )
    monkeypatch.setattr(home + predicate, weak)
    case = CASES[setting]
    tables = tables_of(case.setting)
    found = search_sharers(tables) if model == "sharers" else search_stories(tables)
    assert found.attacks == (case.attacks if model == "sharers" else sum(case.attacks.values()))


@pytest.mark.parametrize("key", ["quorum", "threshold"])
def test_the_model_asks_the_configuration_how_little_it_takes(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    require = MaskingConfig.require_between

    def one_less(self: MaskingConfig, name: str, low: float, high: float) -> None:
        require(self, name, low - (name == key), high)

    monkeypatch.setattr(MaskingConfig, "require_between", one_less)
    settings = every_setting(range(6, 7), corrupt=range(3))
    attacks = [search(setting, "stories").attacks for setting in settings]
    assert any(attacks)


def beside(rng: random.Random, tables: Tables, state: SharerState) -> Iterator[SharerState]:
    """States that differ from a state in the place of one client."""
    labels = ("corrupt", "dropped", "absent", "inside", "divergent", "outside")
    while True:
        bit = 1 << rng.randrange(tables.setting.n)
        label = rng.choice(labels)
        changed = {each: getattr(state, each) & ~bit for each in labels}
        changed[label] |= bit
        if changed["corrupt"] in tables.corrupt and changed["inside"] | changed["divergent"]:
            yield replace(state, **changed, unknown=0)


@pytest.mark.claim("masking-model-check")
def test_the_model_and_real_clients_agree_next_to_attacks() -> None:
    """One client apart from an attack, some states are attacks and most are not: all as said."""
    rng, outcomes = random.Random(3), [0, 0]
    federation = federation_of(8)
    for case in CASES:
        if case.without != EQUAL or case.setting.n != 8 or not case.attacks:
            continue
        tables = tables_of(case.setting, case.without)
        for example in search(case.setting, case.model, case.without).examples[:8]:
            assert isinstance(example, SharerState)
            states = beside(rng, tables, example)
            for _ in range(3):
                state = next(states)
                said, state = opens(tables, state)
                real = replay(federation, case.setting, state, case.without)
                assert real.opens == said, state
                outcomes[said] += 1
    assert min(outcomes) >= 3


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clients", "5", "--replays", "0"]) == 1  # too few states with real keys
    printed = capsys.readouterr().out
    assert "16 mixed cut" in printed
    assert "80 mixed cut" in printed
