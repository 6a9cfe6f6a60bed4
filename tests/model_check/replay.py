"""States of the model with real keys: what the server opens must be what the model says."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from secure_fedrec.protection.masking import Federation
from tests.model_check.cases import Case, search
from tests.model_check.hostile import HostileRound, federation_of
from tests.model_check.settings import Setting, members
from tests.model_check.sharers import SharerState
from tests.model_check.stories import StoryState
from tests.model_check.switches import switched_off

__all__ = ["Replay", "Replays", "State", "replay"]

State = SharerState | StoryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the server computed.

    Args:
        opens: whether it has the exact sum of the state's group.
        lawful: whether it has nothing but one sum that it may have.
    """

    opens: bool
    lawful: bool


def replay(
    federation: Federation, setting: Setting, state: State, without: frozenset[str]
) -> Replay:
    """Play a state with stock clients, some of whose rules are off.

    Whatever the server computes must be the sum of clear vectors: the graph argument of the model
    is itself under test.
    """
    with switched_off(without):
        committee = state.committee if isinstance(state, StoryState) else 0
        hostile = HostileRound(federation, setting, committee=committee)
        if isinstance(state, SharerState):
            _play_sharers(hostile, state)
        else:
            _play_stories(hostile, state)
        opened = hostile.open_sums()
    for each, found in opened.items():
        assert np.array_equal(found, hostile.true_sum(each))
    clients = _clients(hostile)
    allowed = [
        clients(places)
        for places in state.allowed
        if _floor(state, places) >= setting.min_survivors
    ]
    return Replay(
        opens=clients(state.group) in opened,
        lawful=len(opened) <= 1 and all(each in allowed for each in opened),
    )


def _floor(state: State, honest: int) -> int:
    return (honest | state.corrupt).bit_count()


def _play_sharers(hostile: HostileRound, state: SharerState) -> None:
    """Tell clients of the sharers and of the survivors that the state says."""
    clients = _clients(hostile)
    corrupt, dropped, absent = (
        clients(places) for places in (state.corrupt, state.dropped, state.absent)
    )
    inside, divergent, outside = (
        clients(places) for places in (state.inside, state.divergent, state.outside)
    )
    everybody = frozenset(hostile.clients)
    common = everybody - absent
    hostile.corrupt_clients(corrupt)
    for number in sorted(inside | outside | dropped):
        hostile.upload(number, common)
    for number in sorted(divergent):
        unwanted = (outside | clients(state.unknown)) & hostile.near[number]
        hostile.upload(number, common - unwanted)
    story = everybody - absent - dropped
    hostile.tell(inside | outside, story | absent if state.fakes else story)


def _play_stories(hostile: HostileRound, state: StoryState) -> None:
    """Tell clients one of two sets of survivors, or both."""
    clients = _clients(hostile)
    everybody = frozenset(hostile.clients)
    hostile.corrupt_clients(clients(state.corrupt))
    for number in sorted(everybody - hostile.corrupt):
        hostile.upload(number, everybody)
    for story, listeners in zip(state.stories, state.listeners, strict=True):
        hostile.tell(clients(listeners), clients(story))


def _clients(hostile: HostileRound) -> Callable[[int], frozenset[int]]:
    order = hostile.order
    return lambda places: frozenset(order[members(places)].tolist())


@dataclass(slots=True)
class Replays:
    """States that were played twice: with the rule off, and with all rules on.

    Args:
        states: states.
        opened: of them, opened with the rule off, as predicted.
        held: of them, with all rules on nothing opened but a sum that may.
        wrong: what ended otherwise.
    """

    states: int = 0
    opened: int = 0
    held: int = 0
    wrong: list[tuple[str, State]] = field(default_factory=list)
    _federations: dict[int, Federation] = field(default_factory=dict)

    def play(self, case: Case, *, most: int) -> None:
        """Play attacks of a case, evenly spread over its examples."""
        n = case.setting.n
        federation = self._federations.setdefault(n, federation_of(n))
        examples = search(case.setting, case.model, case.without).examples
        chosen = {at * len(examples) // most for at in range(most)} if examples else set()
        for index in sorted(chosen):
            state = examples[index]
            opens = replay(federation, case.setting, state, case.without).opens
            holds = replay(federation, case.safe, state, frozenset()).lawful
            self.states += 1
            self.opened += opens
            self.held += holds
            if not (opens and holds):
                self.wrong.append((case.title, state))
