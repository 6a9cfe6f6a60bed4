"""Games: the harness gives an attack its view but not the truth, and scores the claims.

Each kind of claim is a separate game, defined with its scorer in a module of this package; this
module does not depend on the kinds. Every figure is compared with two others: the figure without
the view (the prior, or chance), and that of the same claims against permuted truth (the null
control, which must be at chance).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

from attacks.base import Attack, Claims, InapplicableError
from attacks.scoring.gains import Figures, Level
from attacks.scoring.measures import MEASURES, require_numbers
from attacks.scoring.truth import Case, GroundTruth, NotApplicable, Scored
from attacks.view.knowledge import Knowledge, item_view
from secure_fedrec.errors import UnstatedFactError
from secure_fedrec.wire import Adversary, OwnUploads, Step, Transcript, View

_SUMS = frozenset({"aggregate", "table", "public"})
"""First words of the names of received sums and of public arrays that sums changed."""

_PAYLOADS = (Step.UPLOAD, Step.SHARE, Step.DENOISE, Step.NOISE, Step.BAG)


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that an attack raised.

    Args:
        type: type of the exception.
        message: its own.
        where: "package/module.py:12", the last line of the attack that was reached, or else the
            line that raised the error.
    """

    type: str
    message: str
    where: str

    @classmethod
    def of(cls, error: BaseException, *, inside: str) -> "Raised":
        """The parts of an error that a report shows.

        Args:
            error: with its traceback.
            inside: name of the attack's module.
        """
        lines = [
            (str(frame.f_globals.get("__name__")), frame.f_code.co_filename, line)
            for frame, line in walk_tb(error.__traceback__)
        ]
        own = [each for each in lines if each[0] == inside]
        module, file, line = (own or lines)[-1]
        path = PurePath(file)  # without the folders of this machine
        parts = module.count(".") + (2 if path.stem == "__init__" else 1)
        where = f"{'/'.join(path.parts[-parts:])}:{line}"
        return cls(type(error).__name__, " ".join(str(error).split()), where)

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"the attack raised {self.type}{said} ({self.where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one attack by one adversary.

    Args:
        attack: name of the attack.
        adversary: name of the adversary.
        game: the attack card's game.
        reason: why the attack was not applicable, or what it raised; None if it was measured.
        raised: the error that it raised, None if none; its result is then unknown.
        lacks: steps whose payloads the attack asked for although not all were recorded; empty if it
            had all that it can read.
        received: names of what reached the adversary from others (``View.received``), and
            ``View.known``.
        read: those that the attack has read, if it was measured.
        held: those that contain information about clients: readable messages and sums, by name.
            What they tell is bounded only by the price of their noise.
        not_installed: the command that installs an extra which the attack would have used; empty
            without one.
        rounds: rounds whose messages it used.
        figures: measured values by the names used in reports and gates; a value is None where the
            data cannot support it.
        units: clients (or members of clients), pairs and positives behind the figures.
        details: attack-specific extras.
        null_control: the same claims against permuted truth.
        roc: pooled ROC curve over the catalogue.
    """

    attack: str
    adversary: str
    game: str
    reason: str | None = None
    raised: Raised | None = None
    lacks: tuple[str, ...] = ()
    received: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    not_installed: str = ""
    rounds: tuple[int, ...] = ()
    figures: Mapping[str, float | None] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    null_control: Mapping[str, Any] | None = None
    roc: Mapping[str, list[float]] | None = None

    @property
    def measured(self) -> bool:
        """Whether the attack ran."""
        return self.reason is None


def evaluate(
    attack: Attack,
    adversary: Adversary,
    transcript: Transcript,
    truth: GroundTruth,
    *,
    seed: int,
    judged: int = 1,
) -> Finding:
    """Run one attack on one adversary's view and score its claims.

    An attack that decodes the payloads of one round is tried on every recorded round; the finding
    is that of the round in which it was strongest, the others are in its details. Limits of
    gains allow for the choice of the round, and for the other findings of the audit.

    Args:
        attack: the attack.
        adversary: the adversary whose view it gets.
        transcript: the recorded run.
        truth: opened only after the attack has made its claims.
        seed: seed of the bootstrap and of the null control.
        judged: pairs of attack and adversary in the audit.
    """
    truth = truth.as_trained(transcript.public.get("rating_levels"))
    view, own = (_view(adversary, transcript, truth) for _ in range(2))
    own.asked, own.fetched = view.asked, view.fetched  # the attack has its own copy of public data
    one_round = bool(getattr(attack, "reads_one_round", False))
    steps = [step for step in _PAYLOADS if one_round and view.sees(step)]
    rounds = sorted({round_ for step in steps for round_ in view.payload_rounds(step)})
    view.asked.clear()  # by the harness, not by the attack
    if len(rounds) < 2:
        return _score(attack, view, own, truth, Level(seed=seed, judged=judged))
    level = Level(seed=seed, tried=len(rounds), judged=judged)
    tried = [_score(attack, view.at(r), own.at(r), truth, level) for r in rounds]
    measured = [finding for finding in tried if finding.measured]
    if not measured:
        return tried[0]
    worst = max(measured, key=_strength)
    lacks = tuple(dict.fromkeys(name for finding in tried for name in finding.lacks))
    shown = [each.key for each in MEASURES.values() if each.page.by_round]
    by_round = {
        str(each.rounds[0]): {key: each.figures[key] for key in shown if key in each.figures}
        for each in measured
    }
    return replace(worst, lacks=lacks, details={**worst.details, "by_round": by_round})


def tried(
    attack: Attack,
    adversary: Adversary,
    transcript: Transcript,
    truth: GroundTruth,
    *,
    seed: int,
    judged: int = 1,
) -> Finding:
    """As ``evaluate``; if the attack raises, the finding states the error and its place.

    Args:
        attack: the attack.
        adversary: the adversary whose view it gets.
        transcript: the recorded run.
        truth: opened only after the attack has made its claims.
        seed: seed of the bootstrap and of the null control.
        judged: pairs of attack and adversary in the audit.
    """
    try:
        return evaluate(attack, adversary, transcript, truth, seed=seed, judged=judged)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is, the other attacks go on
        raised = Raised.of(error, inside=type(attack).__module__)
        blank = Finding(attack=attack.name, adversary=adversary.name, game=attack.card.game)
        return replace(blank, reason=str(raised), raised=raised)


def reads(attack: Attack, adversary: Adversary, transcript: Transcript, truth: GroundTruth) -> bool:
    """Whether an attack gets as far as asking for a message of a recorded run, or raises."""
    try:
        found = _asked(attack, _view(adversary, transcript.closed(), truth))
    except KeyboardInterrupt:
        raise
    except BaseException:  # it raised: its requests are not known
        return True
    return not isinstance(found, NotApplicable)


def _view(adversary: Adversary, transcript: Transcript, truth: GroundTruth) -> View:
    own = OwnUploads(truth.recorded, truth.corrupted_clients(adversary))
    first = truth.first_tables() if adversary.knows else None
    return transcript.view(adversary, own=own, first=first)


def _strength(finding: Finding) -> float:
    """Strength of a finding; of several rounds the strongest counts."""
    of = "other secrets" if finding.figures.get("auc") is None else "rated sets"
    strengths = (each.key for each in MEASURES.values() if each.page.chooses == of)
    return sum(finding.figures.get(key) or 0.0 for key in strengths)


def _score(attack: Attack, view: View, own: View, truth: GroundTruth, level: Level) -> Finding:
    adversary = view.adversary
    blank = Finding(attack=attack.name, adversary=adversary.name, game=attack.card.game)
    claims = _asked(attack, own)
    lacks = tuple(step.name.lower() for step in view.unrecorded())
    received, held = _received(view)
    blank = replace(blank, lacks=lacks, received=received, held=held)
    if isinstance(claims, NotApplicable):
        return replace(blank, reason=claims.reason)
    corrupted = truth.corrupted_clients(adversary)
    case = Case(truth=truth, corrupted=corrupted, seed=level.seed)
    scored, refused = list[Scored](), list[str]()
    for claim in claims.made:
        try:
            scored += claim.scored(case)
        except InapplicableError as why:
            refused.append(str(why))
            if getattr(claim, "decides", False):
                scored.clear()
                break
    if not any(each.units for each in scored):
        unknown = "the truth holds nothing to judge the claims by"
        return replace(blank, reason=refused[0] if refused else unknown)
    figures: Figures = {}
    details = dict(claims.details)
    for each in reversed(scored):  # of two claims of one kind, the first counts
        figures |= each.at(level)
        details |= each.details
    require_numbers(figures)
    nulls = [each.null_control for each in scored if each.null_control is not None]
    return replace(
        blank,
        rounds=claims.rounds,
        read=tuple(sorted(view.fetched)),
        not_installed=claims.not_installed,
        figures=figures,
        units=next(each.units for each in scored if each.units),
        details=details,
        null_control=nulls[0] if nulls else None,
        roc=scored[0].roc,
    )


def _received(view: View) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What reached the adversary from others, by name: what attacks must read, and what is held.

    Attacks must read the adversary's prior knowledge as well. Attacks need not read sums of
    messages that the adversary can read one by one, counts that the sum contains, or sums with
    noise and what these change, which are bounded by a price. Held are messages that tell something
    about clients: not uploads that it cannot read, nor traffic, of which it sees only sizes and
    times.
    """
    told, knowledge = view.received(), Knowledge.of(view)
    heads, answered, silent = [name.partition(" ")[0] for name in told], set[str](), {"traffic"}
    if knowledge.says_hidden:
        answered.add("counts")
        # Without a layer of the toolkit, the recording itself says that uploads are hidden.
        silent |= {"upload"} if view.public["protection"]["layers"] else set()
    elif "upload" in heads:
        answered.add("aggregate")
        silent |= _SUMS
    if knowledge.says_noised:
        answered |= _SUMS
    received, held = (
        tuple(name for name, head in zip(told, heads, strict=True) if head not in left_out)
        for left_out in (answered, silent)
    )
    return (*received, *(() if knowledge.says_noised else view.known())), held


def _asked(attack: Attack, view: View) -> Claims | NotApplicable:
    """The claims of an attack, or the reason why it does not apply."""
    try:
        parties = {party.partition(":")[0] for party in view.adversary.corrupt}
        if parties and parties <= {"denoiser", "denoisers"} and not Knowledge.of(view).denoisers:
            return NotApplicable(reason="no party of this adversary is in the federation")
        seen: View | None = view
        if getattr(attack, "reads_item_rows", True):
            seen = item_view(view) if Knowledge.of(view).item_rows else None
        if seen is None:
            return NotApplicable(reason="the rows of the shared table are not items")
        return attack.run(seen)
    except UnstatedFactError as unknown:
        return NotApplicable(reason=str(unknown))
