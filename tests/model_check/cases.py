"""Each rule switched off at parameters where that lets an attack in, and what must be found."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from tests.model_check.settings import Setting, settings_of, tables_of
from tests.model_check.sharers import SharerState, search_sharers
from tests.model_check.stories import StoryState, search_stories

__all__ = ["CASES", "Case", "Found", "Model", "every_committee", "every_setting", "search"]

Model = Literal["sharers", "stories"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """States of one model that were decided, attacks among them by kind, and examples."""

    states: int
    attacks: dict[str, int]
    examples: tuple[SharerState | StoryState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table.

    Args:
        title: what is missing.
        setting: parameters of the round.
        without: rules that are off.
        model: which stories the server varies.
        attacks: the attacks that must be found, and no others, by number of states.
        repaired: parameters with which all rules are on, where they differ.
    """

    title: str
    setting: Setting
    without: frozenset[str] = frozenset()
    model: Model = "sharers"
    attacks: dict[str, int] = field(default_factory=dict)
    repaired: Setting | None = None

    @property
    def safe(self) -> Setting:
        """Parameters of the round in which nothing may be found."""
        return self.repaired or self.setting


@lru_cache(maxsize=256)
def _search(setting: Setting, without: frozenset[str], model: Model) -> Found:
    tables = tables_of(setting, without)
    if model == "sharers":
        verdict = search_sharers(tables)
        return Found(states=verdict.states, attacks=verdict.attacks, examples=verdict.examples)
    stories = search_stories(tables)
    name = "double reveal" if tables.repeats else "split survivors"
    return Found(
        states=stories.states,
        attacks={name: stories.attacks} if stories.attacks else {},
        examples=stories.examples,
    )


def search(setting: Setting, model: Model, without: frozenset[str] = frozenset()) -> Found:
    """Decide every state of a model."""
    return _search(setting, without, model)


def every_committee(clients: range, *, corrupt: range = range(2)) -> list[Setting]:
    """All parameters of sparse graphs with every committee and quorum of theirs."""
    return settings_of(clients, corrupt=corrupt, committees=True)


def every_setting(clients: range, *, corrupt: range = range(4)) -> list[Setting]:
    """All parameters against an active server, sparse and complete (``settings_of``)."""
    sparse = settings_of(clients, corrupt=corrupt)
    return sparse + settings_of(clients, corrupt=corrupt, complete=True)


def _active(n: int, k: int | None, t: int, c: int, window: int | None, floor: int) -> Setting:
    return Setting(
        n=n,
        degree=k,
        threshold=t,
        corrupt=c,
        window=window,
        min_survivors=floor,
        quorum=(n + c) // 2 + 1,
    )


def _curious(setting: Setting) -> Setting:
    """The same graph with what a curious server's clients check."""
    return replace(setting, window=None, quorum=1, adversary="curious")


_SPARSE = _active(8, 4, 2, 0, 1, 5)
_RING = _active(10, 4, 2, 0, 1, 6)
_EQUAL = frozenset({"equal sharers"})
_BOTH = frozenset({"equal sharers", "sharers"})

CASES: tuple[Case, ...] = (
    Case(
        title="equal sharers",
        setting=_SPARSE,
        without=_EQUAL,
        attacks={"single victim": 32, "group": 32},
    ),
    Case(
        title="equal sharers",
        setting=_active(9, 4, 2, 1, 2, 6),
        without=_EQUAL,
        attacks={"group": 108, "mixed cut": 144},
    ),
    Case(
        title="equal sharers, 2t > k + c",
        setting=_active(8, 4, 3, 1, 2, 5),
        without=_EQUAL,
        attacks={"mixed cut": 16},
    ),
    Case(
        title="equal sharers, 2t > k + c",
        setting=_active(10, 6, 5, 3, 3, 7),
        without=_EQUAL,
        attacks={"mixed cut": 80},
    ),
    Case(title="equal sharers, complete", setting=_active(8, None, 3, 1, None, 5), without=_EQUAL),
    Case(
        title="  and min_survivors < overlap",
        setting=replace(_active(8, None, 3, 1, None, 5), min_survivors=4),
        without=frozenset({"equal sharers", "overlap"}),
        attacks={"single victim": 840, "group": 1120},
        repaired=_active(8, None, 3, 1, None, 5),
    ),
    Case(
        title="  and sharers",
        setting=_active(8, None, 3, 1, None, 5),
        without=_BOTH,
        attacks={"single victim": 840, "group": 1120},
    ),
    Case(title="windows", setting=_RING, without=frozenset({"windows"}), attacks={"cut": 160}),
    Case(
        title="windows",
        setting=_active(11, 4, 2, 1, 2, 7),
        without=frozenset({"windows"}),
        attacks={"cut": 6776},
    ),
    Case(title="curious parameters", setting=_curious(_RING), attacks={"cut": 240}, repaired=_RING),
    Case(
        title="curious parameters",
        setting=_curious(_SPARSE),
        model="stories",
        attacks={"split survivors": 140344},
        repaired=_SPARSE,
    ),
    Case(
        title="quorum",
        setting=_SPARSE,
        without=frozenset({"quorum"}),
        model="stories",
        attacks={"split survivors": 47864},
    ),
    Case(
        title="quorum, complete",
        setting=_active(6, None, 2, 0, None, 4),
        without=frozenset({"quorum"}),
        model="stories",
        attacks={"split survivors": 4482},
    ),
    Case(
        title="committee",
        setting=replace(_active(7, 4, 2, 0, 1, 4), committee=3, quorum=2),
        without=frozenset({"committee"}),
        model="stories",
        attacks={"split survivors": 374360},
    ),
    Case(
        title="committee",
        setting=replace(_active(8, 6, 3, 1, 2, 5), committee=4, quorum=3),
        without=frozenset({"committee"}),
        model="stories",
        attacks={"split survivors": 3976000},
    ),
    Case(
        title="one reveal",
        setting=_active(7, 4, 2, 0, 1, 4),
        without=frozenset({"one reveal"}),
        model="stories",
        attacks={"double reveal": 812},
    ),
    Case(
        title="one reveal, complete",
        setting=_active(6, None, 2, 0, None, 4),
        without=frozenset({"one reveal"}),
        model="stories",
        attacks={"double reveal": 462},
    ),
    Case(
        title="survivors",
        setting=_active(8, 4, 2, 0, 1, 6),
        without=frozenset({"survivors"}),
        attacks={"small sum": 112},
    ),
    Case(
        title="survivors shared",
        setting=_active(10, 4, 3, 0, 1, 6),
        without=frozenset({"survivors shared"}),
        attacks={"cut": 20},
    ),
    Case(
        title="survivors shared, complete",
        setting=_active(8, None, 5, 0, None, 6),
        without=frozenset({"survivors shared"}),
        attacks={"small sum": 336},
    ),
    Case(title="sharers", setting=_SPARSE, without=frozenset({"sharers"})),
    Case(title="live neighbours", setting=_SPARSE, without=frozenset({"live neighbours"})),
)
