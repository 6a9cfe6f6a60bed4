"""What an attack is: a reader of one adversary's view that makes claims about clients.

An attack never sees the truth. It states what it claims (which items a client rated, with what
ratings, what the client's vector is, who sent an anonymous message): each kind of claim is defined
in ``scoring`` together with its scorer, which judges it once ``games`` has opened the truth. If a
view lacks what an attack needs, the attack answers ``NotApplicable`` with the reason, and does not
guess.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy.typing as npt

from attacks.scoring.truth import Case, NotApplicable, Scored
from secure_fedrec.errors import UnstatedFactError
from secure_fedrec.wire import Step, View


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackCard:
    """An attack in words.

    Args:
        game: what the adversary has to tell apart.
        adversary: the threat model.
        needs: what its view must hold.
        statistic: how claims are computed.
        reference: where the idea comes from.
        limits: when it does not work, and what it does not show.
    """

    game: str
    adversary: str
    needs: str
    statistic: str
    reference: str
    limits: str

    @classmethod
    def read(cls, words: str | None) -> "AttackCard":
        """Read the card from a docstring with one paragraph per field, such as "Game: ...".

        Raises:
            TypeError: a field is missing, unless the interpreter strips docstrings.
        """
        names = [each.name for each in fields(cls)]
        if words is None:
            return cls(**dict.fromkeys(names, ""))
        titles = "|".join(name.capitalize() for name in names)
        parts = re.split(rf"^ *({titles}|Args):", words, flags=re.MULTILINE)[1:]
        found = zip(parts[::2], parts[1::2], strict=True)
        told = {title.lower(): " ".join(text.split()) for title, text in found}
        return cls(**{name: told[name] for name in names if name in told})


Planted: TypeAlias = Mapping[str, npt.NDArray[Any]]
Secrets: TypeAlias = Mapping[str, Callable[[Planted], npt.NDArray[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A federation on which an attack must find planted leaks, so that its silence is meaningful.

    Args:
        measure: key of the figure that has to reach its floor.
        on: the federation planted to leak, by its name in ``planted.controls``.
        who: the adversary, by its name there.
        floor: for this attack, if what it reads allows less than the figure's own floor.
        secrets: the true values of what it claims there: by key, a function that computes a secret
            of every client (see ``GroundTruth.secrets``) from arrays of the federation by name.
        breaks: what a layer has to hide to withstand the attack (``protection.STOPS``); by default
            a client's whole contribution.
        in_bags: whether this applies to what is collected in bags, and not to what is summed.
    """

    measure: str
    on: str
    who: str = "server"
    floor: float | None = None
    secrets: Secrets = field(default_factory=dict)
    breaks: str = "contribution"
    in_bags: bool = False


class Claim(Protocol):
    """A claim of some kind, which has a method that scores it."""

    def scored(self, case: Case) -> Iterator[Scored]:
        """Score the claim against the truth; nothing if the truth holds no such secret.

        Raises:
            InapplicableError: it cannot be judged, for this reason.
        """


Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """Everything an attack claims.

    Args:
        rounds: rounds whose messages it used.
        made: the claims. The first claim gives units, null control and curve of the finding; of two
            claims of one kind, the first gives the figures.
        details: what else is worth reporting, as JSON values.
        not_installed: which extra would have let it claim more, with the command that installs it.
    """

    rounds: tuple[int, ...]
    made: tuple[Claim, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    not_installed: str = ""

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The claims of a kind."""
        return tuple(each for each in self.made if isinstance(each, kind))


class Attack(Protocol):
    """An attack.

    One that decodes the payloads of a single round says so with ``reads_one_round = True``; the
    harness then tries it on every recorded round. One that does not take the rows of the shared
    table for items says so with ``reads_item_rows = False``; the others are not asked where they
    are something else.
    """

    @property
    def name(self) -> str:
        """Its name on the command line and in reports."""

    @property
    def card(self) -> AttackCard:
        """Its description."""

    def run(self, view: View) -> Claims | NotApplicable:
        """Make claims from a view."""


class Controlled(Attack, Protocol):
    """An attack of the suite, with a positive control that is run in every audit."""

    @property
    def control(self) -> Control:
        """The federation on which it must find planted leaks."""


class InapplicableError(Exception):
    """An attack does not apply, or a claim cannot be judged, for this reason."""


class SuiteAttack:
    """An attack whose docstring is its card; it does not apply if a ``need`` is missing."""

    name: ClassVar[str]
    control: ClassVar[Control]
    card: ClassVar[AttackCard]

    def __init_subclass__(cls) -> None:
        cls.card = AttackCard.read(cls.__doc__)

    def run(self, view: View) -> Claims | NotApplicable:
        """Make claims from a view, or give as reason what is missing."""
        try:
            return self.claim(view)
        except (InapplicableError, UnstatedFactError) as lacking:
            return NotApplicable(reason=str(lacking))

    def claim(self, view: View) -> Claims:
        """Make claims from a view that holds what they need."""
        raise NotImplementedError


class OneRound:
    """Mix-in for ``SuiteAttack``: decodes one round's payloads, whatever the table's rows are."""

    reads_one_round = True
    reads_item_rows = False


def need(there: Kind | None, reason: str) -> Kind:
    """Require what a ``SuiteAttack`` or a scorer needs; if it is missing, end with this reason."""
    if not there:
        raise InapplicableError(reason)
    return there


def require_seen(view: View, steps: Mapping[Step, str]) -> None:
    """Require messages of some steps, each with its name for the reason."""
    for step, what in steps.items():
        need(view.sees(step), f"the view holds no {what}")


def common_rounds(
    view: View, *steps: Step, otherwise: str, payload: bool = False
) -> tuple[int, ...]:
    """Rounds that have messages of every step, or their payloads; needs one at least."""
    of_step = (view.payload_rounds(step) if payload else view.rounds(step) for step in steps)
    return need(tuple(sorted(set.intersection(*map(set, of_step)))), otherwise)
