"""Settings of federated EASE."""

from typing import Annotated, Final

from secure_fedrec.settings import (
    Count,
    Natural,
    NonNegative,
    OneOf,
    Positive,
    Rounds,
    Settings,
    Unit,
)

SOLUTIONS: Final = ("inverse", "eigenvectors")
PLACES: Final = ("client", "server")


class EASEConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rounds: in which clients can add what they have; each does so once, the first time it takes
            part. With ``candidates`` one more round, the last, chooses the shrinkage.
        shrinkage: lambda of the ridge regression, as a share of the number of clients.
        candidates: shrinkages that the clients choose from in the last round: each finds an item
            of its own, which it kept out of the sum, by all of them, and the numbers of those who
            found theirs are summed. Empty takes ``shrinkage``.
        solution: "inverse" is the closed form of EASE. "eigenvectors" projects on the leading
            eigenvectors of the sum, which tolerates noise.
        rank: most eigenvectors. If the sum has noise, only those that exceed it are taken.
        solved_at: "client" sends all clients the sum, "server" sends the solution, after one round.
        largest_norm: the Frobenius norm that a client's x x^T is scaled down to if it is larger,
            for noise; without it counts are sent.
        pair_floor: pairs of items, an item with itself among them, that fewer clients have are set
            to 0 in the sum before it is sent out or solved; the server has them. 0 keeps all.
        sketch: columns of random signs that x x^T is multiplied by, for large catalogues: m * k
            sums in the place of m (m + 1) / 2. 0 sends the triangle.
        max_memory_gb: most memory that the sums and their solution may take.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    rounds: Rounds = 1
    shrinkage: NonNegative = 0.25
    candidates: tuple[NonNegative, ...] = ()
    solution: Annotated[str, OneOf(SOLUTIONS)] = "inverse"
    rank: Count = 64
    solved_at: Annotated[str, OneOf(PLACES)] = "client"
    largest_norm: Positive | None = None
    pair_floor: Natural = 0
    sketch: Natural = 0
    max_memory_gb: Annotated[Positive, Unit("GB")] = 8.0

    def _agree(self) -> None:
        if self.candidates:
            self._require_choice()
        if self.solved_at == "server" and self.rounds > 1:
            problem = (
                "over several rounds the server would have to keep a sum that clients do not see"
            )
            raise self.refusal("solved_at", problem, ("client",))
        if self.sketch and self.solved_at == "server":
            raise self.refusal("solved_at", "a sketch is solved at the client", ("client",))
        if self.sketch and self.largest_norm is not None:
            problem = "random signs do not keep the norm of x x^T: leave out algorithm.largest_norm"
            raise self.refusal("sketch", problem, (0,))
        if self.pair_floor:
            self._require_counts()

    def _require_counts(self) -> None:
        if self.sketch or self.largest_norm is not None:
            problem = (
                "a floor applies to counts of pairs: leave out algorithm.sketch and "
                "algorithm.largest_norm"
            )
            raise self.refusal("pair_floor", problem, (0,))
        if self.rounds - bool(self.candidates) > 1:
            problem = "pairs left out of the sum of one round are missing from the next"
            raise self.refusal("pair_floor", problem, (0,))

    def _require_choice(self) -> None:
        if self.solution != "inverse":
            raise self.refusal("candidates", "eigenvectors take no shrinkage", ((),))
        if len(set(self.candidates)) < 2:
            raise self.refusal(
                "candidates", "must hold at least two different candidates, or be empty"
            )
        if self.rounds < 2:
            raise self.refusal(
                "rounds", "must be at least 2 with algorithm.candidates: the last round chooses one"
            )

    def chooses_after(self, completed: int) -> bool:
        """Whether the round after this many chooses the shrinkage."""
        return bool(self.candidates) and completed >= self.rounds - 1
