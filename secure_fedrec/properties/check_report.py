"""What the reports of all checks have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedrec.errors import SplitPersonalizationError

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A part that could not be tested, so that its outcome is unknown.

    Args:
        subject: the parameter or other object under test.
        problem: why it could not be tested, as a clause.
        seed: seed of the trial, if the gap is due to one trial.
    """

    subject: str
    problem: str
    seed: int | None = None

    def __str__(self) -> str:
        where = "" if self.seed is None else f" (seed {self.seed})"
        return f"not tested: {self.subject!r} {self.problem}{where}"


class CheckReport:
    """The verdict of a check: it holds, is refuted, or is open.

    Attributes:
        violations: counterexamples.
        gaps: what was not tested.
    """

    __slots__ = ()

    violations: Sequence[object]
    gaps: Sequence[Gap]

    @property
    def holds(self) -> bool:
        """No violation was found and nothing was left untested."""
        return not self.violations and not self.gaps

    @property
    def refuted(self) -> bool:
        """Whether a counterexample was found; with gaps only, the question is open."""
        return bool(self.violations)

    def require(self) -> None:
        """Raise unless it holds.

        Raises:
            SplitPersonalizationError: with the whole report as its message.
        """
        if not self.holds:
            raise SplitPersonalizationError(str(self))


def listed(findings: Sequence[object]) -> list[str]:
    """A line for each of the first findings, and one line that counts the others."""
    lines = [f"- {finding}" for finding in findings[:_SHOWN]]
    if len(findings) > _SHOWN:
        lines.append(f"- and {len(findings) - _SHOWN} more of this kind")
    return lines
