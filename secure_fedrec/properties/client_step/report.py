"""The report of a check of client steps."""

from dataclasses import dataclass, field
from typing import Final

from secure_fedrec.properties.check_report import CheckReport, Gap, listed
from secure_fedrec.properties.client_step.states import User

NAME: Final = "name"
VALUE: Final = "value"
READS: Final = "reads"
WRITES: Final = "writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientViolation:
    """Something private leaves its client, or reaches another one.

    Args:
        kind: "name" (sent, and not named by ``uploads``, or named by ``private``), "value" (what is
            sent contains a private value), "reads" (another client's private value, or training,
            changes what this client sends or keeps), "writes" (a training changes another client's
            private value, or both share memory).
        parameter: the private parameter; for "name" the path in what was sent; "local training" if
            no single parameter changes another client's step.
        owner: the client whose value it is.
        reader: the client whose training reads or writes it; None where it goes to the server.
        reaches: where it is found, and how, as a clause.
        seed: ``check_client_step(..., seed=seed, trials=1)`` reproduces it.
    """

    kind: str
    parameter: str
    owner: User
    reader: User | None
    reaches: str
    seed: int

    def __str__(self) -> str:
        to = "the server" if self.reader is None else f"client {self.reader}"
        whose = f"client {self.owner}'s {self.parameter!r}"
        return f"{self.kind}: {whose} reaches {to}: {self.reaches} (seed {self.seed})"


@dataclass(slots=True, kw_only=True)
class ClientReport(CheckReport):
    """Outcome of ``check_client_step``.

    Attributes:
        users: the clients.
        trials: random trials made.
        seed: seed of the first one.
        private: names of private arrays.
        violations: what was found, one of each kind per parameter and pair of clients.
        gaps: what was not tested.
        advice: facts that do not break a rule but should be known.
    """

    users: tuple[User, ...]
    trials: int
    seed: int = 0
    private: tuple[str, ...] = ()
    violations: list[ClientViolation] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "refuted" if self.refuted else "holds" if self.holds else "open"
        head = (
            f"client step: {verdict} ({self.trials} random trials, {len(self.users)} clients; "
            f"private: {', '.join(self.private)})"
        )
        advice = [f"advice: {each}" for each in self.advice]
        findings = (self.violations, self.gaps, advice)
        return "\n".join([head, *(line for each in findings for line in listed(each))])

    def violate(
        self, kind: str, parameter: str, users: tuple[User, User | None], reaches: str, seed: int
    ) -> None:
        """Note a ``ClientViolation``, each only once; ``users`` are its owner and its reader."""
        owner, reader = users
        found = ClientViolation(
            kind=kind, parameter=parameter, owner=owner, reader=reader, reaches=reaches, seed=seed
        )
        known = [(each.kind, each.parameter, each.owner, each.reader) for each in self.violations]
        if (kind, parameter, owner, reader) not in known:
            self.violations.append(found)

    def leave_open(self, subject: str, problem: str, seed: int | None = None) -> None:
        """Note a ``Gap``, once."""
        if all((each.subject, each.problem) != (subject, problem) for each in self.gaps):
            self.gaps.append(Gap(subject=subject, problem=problem, seed=seed))

    def advise(self, advice: str) -> None:
        """Note advice, once."""
        if advice not in self.advice:
            self.advice.append(advice)
