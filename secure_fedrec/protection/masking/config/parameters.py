"""Degree, threshold and quorum of a masked sum, from exact tails.

n clients, of which c are corrupt (they share all they know with the server) and at most d drop out,
mask with k neighbours each and share their secrets among them so that t shares restore one.

Privacy may fail in a round with probability at most 2^-privacy_bits, all of these events together:

- *corrupt neighbours*: an honest client has t or more corrupt neighbours, who restore both of its
  secrets. Expected number of such clients: (n - c) P[HG(n - 1, c, k) >= t]. Without agreed
  survivors an honest neighbour may give either share, never both, so 2t <= k + corrupt neighbours
  is fatal already (Bell et al., CCS 2020, the semi-malicious setting);
- *connectivity* (curious server): honest survivors fall into groups whose sums show
  (``graph.disconnection_bound``);
- *windows* (active server, which chooses the survivors after it saw the graph): a window of k/2
  ring places has more than c_w corrupt clients. Every client insists on c_w + 1 survivors per
  window (``graph.windows_hold``), so unless this happens the honest survivors are connected;
- *committee* (active server): so many of the m clients that are drawn to sign the survivors are
  corrupt that two survivor sets could find a quorum of q signatures (``committee``);
- *cohort* (cohort drawn from a larger roster): it holds more corrupt clients than c.

No other event is random. That an active server gets at most one of an honest client's two secrets,
and a self-mask seed only of a client that masked by the sharers that the others know of, follows
from signatures and counts (``topology``; the proof is docs/protection/masking-proof.md).

The round may fail, with up to d random dropouts, with probability at most 2^-correctness_bits:

- *live neighbours*: some client keeps fewer than t of its neighbours, n P[HG(n, d, k) > k - t];
- *live windows* (active): some window keeps fewer than c_w + 1 survivors;
- *live committee* (active): fewer than q of its members are left.

HG(N, m, k) is the number of marked ones among k drawn of N of which m are marked. On the complete
graph every event is decided by counting and has probability 0. The budget is not divided among
events, which would only enlarge the graph: the bound is on their sum.

Against an active server, two different survivor sets cannot both gather a quorum, since corrupt
clients sign both and honest ones one: floor((n + c) / 2) + 1 signatures of the cohort, or, on a
Harary graph, q of its committee. If a committee signs, sums are still over at least floor((n + c) /
2) + 1 clients: clients of two epochs have two committees, but such sums share an honest client, and
it is of one epoch.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final, Literal

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking.config.committee import overlap_of
from secure_fedrec.protection.masking.config.degrees import (
    Adversary,
    Answer,
    Question,
    complete_graph,
    smallest_harary,
)
from secure_fedrec.protection.masking.config.graph import disconnection_bound
from secure_fedrec.protection.masking.config.hypergeometric import (
    least_within,
    log2_above,
    upper_tail,
)
from secure_fedrec.settings import Settings, Share, Within

COMPLETE_UP_TO: Final = 128
"""Clients up to which every client masks with every other, unless told otherwise."""

_MOST_CLIENTS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One event that the parameters make improbable.

    Args:
        event: its name in the module's list.
        protects: "privacy" or "correctness".
        formula: the formula that was evaluated.
        log2: binary logarithm of the probability, rounded up; -inf for an impossible event.
    """

    event: str
    protects: Literal["privacy", "correctness"]
    formula: str
    log2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingParameters:
    """Parameters of one masked sum; make them with ``find_parameters``.

    Args:
        n: clients of the cohort.
        degree: neighbours of each client, k; n - 1 for the complete graph.
        threshold: shares that restore a secret, t. The least one for a curious server (the fewest
            shares to combine). For an active server so many that 2t > k + corrupt neighbours, or
            the most. This is a reserve; the bounds do not depend on it. Where it is met, neighbours
            that give one share each and corrupt ones that give both cannot restore two secrets of
            one client, even if so many clients are corrupt that two survivor sets find a quorum.
        threshold_least: smallest t that meets the privacy bound.
        threshold_most: largest t that meets the correctness bound.
        corrupt_clients: corrupt clients in the cohort, c.
        dropped_clients: dropouts that a round survives, d.
        min_survivors: n - d; with fewer the bounds say nothing, and the round must abort.
        quorum: signatures on one survivor set that a client waits for; 1 against a curious server,
            which names the same set to all clients.
        committee: clients that are drawn to give these signatures, m; None for all clients.
        window_least: survivors each window of degree/2 ring places must hold, c_w + 1; None where
            the graph is complete or the server curious.
        adversary: the server that is withstood.
        agreed_survivors: whether clients agree on survivors and sharers before they unmask.
        privacy_bits: statistical security in bits.
        correctness_bits: a round with ``dropped_clients`` random dropouts fails with probability
            at most 2^-correctness_bits.
        bounds: what ``threshold`` and ``degree`` achieve, event by event.
    """

    n: int
    degree: int
    threshold: int
    threshold_least: int
    threshold_most: int
    corrupt_clients: int
    dropped_clients: int
    min_survivors: int
    quorum: int
    committee: int | None
    window_least: int | None
    adversary: Adversary
    agreed_survivors: bool
    privacy_bits: int
    correctness_bits: int
    bounds: tuple[Bound, ...]

    @property
    def complete(self) -> bool:
        """Whether every client masks with every other."""
        return self.degree == self.n - 1


class _Asked(Settings, section="masking"):
    """Arguments of ``find_parameters``."""

    clients: Annotated[int, Within(3, _MOST_CLIENTS)]
    corrupt: Share
    dropout: Share
    adversary: Adversary
    agreed_survivors: bool
    privacy_bits: Annotated[int, Within(1, 128)]
    correctness_bits: Annotated[int, Within(1, 128)]
    roster: int | None
    min_honest: Annotated[int, Within(2, _MOST_CLIENTS)]

    def _agree(self) -> None:
        self.require_between("roster", self.clients, _MOST_CLIENTS)
        if self.adversary == "active" and not self.agreed_survivors:
            problem = (
                "an active server that names different survivors to different clients opens "
                "pairwise masks at one and self masks at the other, whatever the threshold"
            )
            raise self.refusal("agreed_survivors", problem, choices=(True,))


def find_parameters(
    n: int,
    *,
    corrupt: float,
    dropout: float,
    adversary: Adversary,
    agreed_survivors: bool = True,
    privacy_bits: int = 40,
    correctness_bits: int = 20,
    roster: int | None = None,
    complete_up_to: int = COMPLETE_UP_TO,
    min_honest: int = 2,
) -> MaskingParameters:
    """The complete graph for small cohorts, else the smallest Harary graph that meets the bounds.

    Args:
        n: clients of the cohort, 3 to 2^24.
        corrupt: largest fraction γ of corrupt clients, in the roster if one is given, else in the
            cohort; c = floor(γ n) of the decimal number as written.
        dropout: largest fraction δ of dropouts that a round survives; d = floor(δ n). Not the mean
            rate: rounds with more dropouts than d abort.
        adversary: "curious" or "active".
        agreed_survivors: whether clients sign one survivor set, and the sharers that they masked
            by, before unmasking. Without it only a server that tells all clients the same is
            withstood.
        privacy_bits: 1 to 128.
        correctness_bits: 1 to 128.
        roster: clients from which the cohort is drawn at random, n or more; None if they are the
            cohort.
        complete_up_to: largest cohort that gets the complete graph without a search.
        min_honest: fewest honest survivors over whom a sum may be taken, at least 2.

    Raises:
        ConfigError: an argument is out of range, or no graph meets the bounds; the message says
            what to change.
    """
    _Asked(
        clients=n,
        corrupt=corrupt,
        dropout=dropout,
        adversary=adversary,
        agreed_survivors=agreed_survivors,
        privacy_bits=privacy_bits,
        correctness_bits=correctness_bits,
        roster=roster,
        min_honest=min_honest,
    )
    privacy = Fraction(1, 2**privacy_bits)
    clients, drawn = _corrupt_clients(n, corrupt, roster, privacy / 2)
    question = Question(
        n=n,
        corrupt=clients,
        dropped=share_of(dropout, n),
        adversary=adversary,
        agreed=agreed_survivors,
        privacy=privacy - drawn,
        correctness=Fraction(1, 2**correctness_bits),
    )
    quorum = _require_survivors(question, dropout, corrupt, min_honest)
    answer = None if n <= complete_up_to else smallest_harary(question)
    if answer is None:
        answer = complete_graph(question, dropout)
    threshold, committee = _threshold(question, answer), answer.committee
    bounds = _bounds(question, answer, threshold)
    if roster is not None and roster > n:
        bounds = (_bound("cohort", "privacy", "P[HG(N, γN, n) > c]", drawn), *bounds)
    return MaskingParameters(
        n=n,
        degree=answer.degree,
        threshold=threshold,
        threshold_least=answer.least,
        threshold_most=answer.most,
        corrupt_clients=clients,
        dropped_clients=question.dropped,
        min_survivors=n - question.dropped,
        quorum=quorum if committee is None else committee.quorum,
        committee=None if committee is None else committee.members,
        window_least=answer.window_least,
        adversary=adversary,
        agreed_survivors=agreed_survivors,
        privacy_bits=privacy_bits,
        correctness_bits=correctness_bits,
        bounds=bounds,
    )


def _threshold(question: Question, answer: Answer) -> int:
    """Shares that restore a secret: the fewest, or with a reserve against an active server."""
    if question.adversary != "active":
        return answer.least
    return min(answer.most, max(answer.least, answer.never_both))


def share_of(rate: float, n: int) -> int:
    """floor(rate n) of the decimal number that the float prints as: .29 of 100 is 29, not 28."""
    return int(Fraction(repr(float(rate))) * n)


def _corrupt_clients(
    n: int, rate: float, roster: int | None, budget: Fraction
) -> tuple[int, Fraction]:
    """Corrupt clients to expect at most in the cohort, and P[there are more]."""
    if roster is None or roster == n:
        return share_of(rate, n), Fraction(0)
    marked = share_of(rate, roster)
    excess = least_within(roster, marked, n, budget)
    return excess - 1, upper_tail(roster, marked, n, excess)


def _require_survivors(question: Question, dropout: float, corrupt: float, min_honest: int) -> int:
    """The quorum of all clients, after a check that enough stay to form it and to hide in a sum."""
    stay = question.n - question.dropped
    blamed, rate = ("dropout", dropout) if dropout >= corrupt else ("corrupt", corrupt)
    quorum = overlap_of(question.n, question.corrupt)
    if stay - question.corrupt < min_honest:
        raise ConfigError(
            f"masking.{blamed}",
            rate,
            f"of {question.n} clients {question.dropped} may drop out and {question.corrupt} be "
            f"corrupt, which leaves fewer than {min_honest} honest survivors; lower either rate, "
            "or enlarge the cohort",
        )
    if question.adversary == "curious":
        return 1  # it names one set: there is nothing to agree on
    if stay < quorum:
        raise ConfigError(
            f"masking.{blamed}",
            rate,
            f"only {stay} of {question.n} clients are sure to stay, and agreement with "
            f"{question.corrupt} corrupt ones needs {quorum} signatures; lower either rate",
        )
    return quorum


def _bounds(question: Question, answer: Answer, threshold: int) -> tuple[Bound, ...]:
    """Every event of the module's list, evaluated at the chosen degree and threshold."""
    n, c, d, k = question.n, question.corrupt, question.dropped, answer.degree
    fatal, fatal_formula = threshold, "t"
    if not question.agreed:
        fatal, fatal_formula = 2 * threshold - k, "2t - k"
    bounds = [
        _bound(
            "corrupt neighbours",
            "privacy",
            f"(n - c) P[HG(n - 1, c, k) >= {fatal_formula}]",
            question.honest * upper_tail(n - 1, c, k, fatal),
        ),
        _bound(
            "live neighbours",
            "correctness",
            "n P[HG(n, d, k) > k - t]",
            # On the complete graph no client is its own neighbour: d others at most are gone.
            n * upper_tail(n - 1 if k == n - 1 else n, d, k, k - threshold + 1),
        ),
    ]
    if answer.window_least is not None:
        window = k // 2
        over = n * upper_tail(n, c, window, answer.window_least)
        lost = n * upper_tail(n, d, window, window - answer.window_least + 1)
        bounds += [
            _bound("windows", "privacy", "n P[HG(n, c, k/2) > c_w]", over),
            _bound("live windows", "correctness", "n P[HG(n, d, k/2) > k/2 - c_w - 1]", lost),
        ]
        if answer.committee is not None:
            drawn = answer.committee
            bounds += [
                _bound("committee", "privacy", "P[HG(n, c, m) >= 2q - m]", drawn.corrupted),
                _bound("live committee", "correctness", "P[HG(n, d, m) > m - q]", drawn.lost),
            ]
    elif k < n - 1:
        apart = disconnection_bound(n, c + d, k)
        formula = "C(n - c - d, 2) C(c + d, k) / C(n - 1, k)"
        bounds.append(_bound("connectivity", "privacy", formula, apart))
    return tuple(bounds)


def _bound(
    event: str, protects: Literal["privacy", "correctness"], formula: str, probability: Fraction
) -> Bound:
    return Bound(event=event, protects=protects, formula=formula, log2=log2_above(probability))
