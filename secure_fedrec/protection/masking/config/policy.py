"""Conditions under which a site takes part; they are set at the site, never by the server.

The server proposes a configuration; each client holds it against its own policy. A client that
assumes a fraction of corrupt clients finds the safe parameters itself (``find_parameters``) instead
of trusting the proposed ones. Its upload is checked against the round as well: a vector
(``EncodedVector``) fits layout, ring, length and the number of clients, or is not masked.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import word_type
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.graph import permutation
from secure_fedrec.protection.masking.config.parameters import (
    COMPLETE_UP_TO,
    MaskingParameters,
    find_parameters,
    share_of,
)
from secure_fedrec.protection.masking.config.round_settings import KeyAgreement, MaskingConfig
from secure_fedrec.protection.session.roster import Roster
from secure_fedrec.protection.session.statement import (
    NO_STATEMENT,
    Agreed,
    Later,
    Statement,
    labelled_hash,
)
from secure_fedrec.settings import Settings, Share, Within

CohortRule: TypeAlias = Literal["roster", "beacon", "server"]

_safe_parameters = lru_cache(maxsize=32)(find_parameters)


class SitePolicy(Settings, section="policy"):
    """Conditions of a client.

    Args:
        adversary: "active" refuses rounds that only withstand a curious server.
        corrupt: largest fraction of corrupt clients the site reckons with.
        dropout: largest fraction of dropouts that the parameters may be made for.
        min_survivors: fewest vectors among which the site's own may be hidden.
        cohort: where the clients of a round come from: "roster" (all of it), "beacon" (drawn by
            public randomness), or "server" (its free choice: for a curious server only, because an
            active one would surround a client with corrupt ones).
        cohort_clients: clients that a beacon draws; exactly with the rule "beacon". It is settled
            here because a server that could choose it after the beacon would have as many draws as
            there are sizes, and the bound on corrupt clients holds for one.
        key_agreement: "x25519+mlkem768" refuses rounds without ML-KEM.

    Raises:
        ConfigError: a setting is out of range, an active server may choose the cohort, or the
            size of a drawn cohort is missing or has no use.
    """

    adversary: Adversary = "active"
    corrupt: Share = 0.1
    dropout: Share = 0.1
    min_survivors: Annotated[int, Within(least=2)] = 3
    cohort: CohortRule = "roster"
    cohort_clients: Annotated[int, Within(least=3)] | None = None
    key_agreement: KeyAgreement = "x25519"

    def _agree(self) -> None:
        if self.adversary == "active" and self.cohort == "server":
            problem = "lets an active server choose its victims"
            raise self.refusal("cohort", problem, ("roster", "beacon"))
        if (self.cohort == "beacon") != (self.cohort_clients is not None):
            raise self.refusal("cohort_clients", 'must be set exactly with the rule "beacon"')

    def for_round(
        self, expected: "Expected", config: MaskingConfig, roster: Roster
    ) -> "SitePolicy":
        """This policy with the corrupt clients of a round of which the host knows more.

        A cohort that the host names is not drawn by the site's rule, so nothing says that corrupt
        clients are as rare in it as in the roster: against an active server all of theirs may be
        in it, unless the host says how many.

        Args:
            expected: what the host knows of the round.
            config: the proposed configuration.
            roster: the roster.

        Raises:
            ProtocolError: fewer than two clients of the cohort would be honest.
        """
        named, least = expected.cohort is not None, expected.corrupt_clients
        if least is None:
            active = named and self.adversary == "active"
            least = share_of(self.corrupt, len(roster.numbers)) if active else 0
        drawn = self.cohort == "beacon"
        undrawn = replace(self, cohort="roster", cohort_clients=None) if drawn else self
        site = undrawn if named else self
        if not least or least <= site._parameters(config, roster).corrupt_clients:
            return site
        if least > config.clients - 2:
            raise ProtocolError(
                f"SETUP: {least} corrupt clients may be among the {config.clients} of the cohort"
            )
        # The half keeps floor(rate n) at ``least`` when the quotient is rounded.
        return replace(undrawn, corrupt=(least + 0.5) / config.clients)

    def require(self, config: MaskingConfig, roster: Roster) -> None:
        """Check a proposed configuration.

        Raises:
            ProtocolError: the configuration promises less than this site requires.
        """
        if self.adversary == "active":
            if config.adversary != "active":
                raise ProtocolError("SETUP: this site takes part only against an active server")
            if roster.server == roster.operator:
                raise ProtocolError("SETUP: the operator of the roster must not be the server")
        if self.key_agreement != "x25519" and not config.hybrid:
            raise ProtocolError("SETUP: this site asks for the hybrid key agreement")
        if config.min_survivors < self.min_survivors:
            raise ProtocolError(
                f"SETUP: sums over {config.min_survivors} clients; this site asks for "
                f"{self.min_survivors}"
            )
        safe = self._parameters(config, roster)
        if config.corrupt_clients < safe.corrupt_clients:
            raise ProtocolError(
                f"SETUP: withstands {config.corrupt_clients} corrupt clients; this site reckons "
                f"with {safe.corrupt_clients}"
            )
        if config.degree is not None:
            _require_sparse(config, safe)

    def require_cohort(self, cohort: IntArray, roster: Roster, *, beacon: bytes | None) -> None:
        """Check the cohort that was chosen.

        Args:
            cohort: int64[n], ascending.
            roster: the roster.
            beacon: public randomness of the epoch before the round's, if known.

        Raises:
            ProtocolError: the cohort is not the one that the site's rule gives.
        """
        size = self.cohort_clients or 0  # set where the beacon draws
        if self.cohort == "server":
            expected = cohort[np.isin(cohort, roster.numbers)]
        elif self.cohort == "roster":
            expected = roster.numbers
        elif beacon is None:
            raise ProtocolError("SETUP: the beacon that draws the cohort has not been observed")
        elif not len(cohort) == size <= len(roster.numbers):
            raise ProtocolError(
                f"SETUP: a cohort of {len(cohort)} clients; this site has the beacon draw "
                f"{size} of {len(roster.numbers)}"
            )
        else:
            expected = draw_cohort(beacon, roster, size)
        if not np.array_equal(cohort, expected):
            raise ProtocolError(f"SETUP: not the cohort of the rule {self.cohort!r}")

    def _parameters(self, config: MaskingConfig, roster: Roster) -> MaskingParameters:
        drawn = self.cohort == "beacon"
        try:
            return _safe_parameters(
                config.clients,
                corrupt=self.corrupt,
                # Dropouts matter to the privacy of a sparse graph alone.
                dropout=0.0 if config.degree is None else self.dropout,
                adversary=config.adversary,
                roster=max(len(roster.numbers), config.clients) if drawn else None,
                complete_up_to=config.clients if config.degree is None else COMPLETE_UP_TO,
            )
        except ConfigError as error:
            raise ProtocolError(f"SETUP: no parameters are safe at this site: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What a client knows of the round from elsewhere; a SETUP that differs is refused.

    Args:
        layout_hash: layout of the vector it is going to upload.
        statement: what the vector is going to be computed from, as this host makes it; ``Later``
            where keys are agreed on before it is known. A site that takes part against an active
            server must name one.
        cohort: int64[n], the clients that must take part, in place of those of the policy's rule;
            None leaves it to that rule.
        min_survivors: fewest vectors that may be summed, if more than the policy asks for.
        corrupt_clients: corrupt clients to withstand, if more than the policy reckons with. Where
            it is None and ``cohort`` is given, a policy against an active server reckons with the
            corrupt clients of the whole roster, ``floor(policy.corrupt * len(roster))``: the party
            that chose the cohort may have chosen all of them.
        config: a configuration that this host has made; it stands for the proposed one where that
            has the same bytes, which is not made a second time. Other configurations are not
            refused because of it.
    """

    layout_hash: bytes
    statement: Statement | Later | None = None
    cohort: IntArray | None = None
    min_survivors: int = 0
    corrupt_clients: int | None = None
    config: MaskingConfig | None = None

    @classmethod
    def of(
        cls, config: MaskingConfig, cohort: IntArray, roster: Roster, statement: Statement | Later
    ) -> "Expected":
        """A round of a configuration that this host has made.

        Args:
            config: the configuration.
            cohort: int64[n], its clients; those of the policy's rule if they are all there are.
            roster: the roster.
            statement: what it agrees on.
        """
        return cls(
            layout_hash=config.layout_hash,
            statement=statement,
            cohort=None if np.array_equal(cohort, roster.numbers) else cohort,
            config=config,
        )

    @property
    def stated(self) -> bytes:
        """Digest of the statement, or the value used in its place."""
        return NO_STATEMENT if self.statement is None else self.statement.digest

    @property
    def federation(self) -> bytes:
        """The federation of the round; b"" where nothing is stated."""
        return b"" if self.statement is None else self.statement.federation

    @property
    def once(self) -> bytes:
        """Identifies the sum that a client reveals for; empty if not known yet, or not stated."""
        return self.statement.once if isinstance(self.statement, Statement) else b""

    def agreed(self, named: Statement | None = None) -> Agreed | None:
        """What a vector is computed from: the statement, or the one that is named with it.

        Returns:
            None where nothing is stated.

        Raises:
            ConfigError: a statement is missing, or it is one too many, or of another federation.
        """
        due = self.statement
        if isinstance(due, Later) != (named is not None):
            exactly = "must be named exactly where the round begins with a later statement"
            raise ConfigError("statement", named, exactly)
        if named is not None and named.federation != self.federation:
            raise ConfigError("statement.federation", named.federation.hex(), "is another one")
        stated = due if named is None else named
        return stated.agreed if isinstance(stated, Statement) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedVector:
    """A vector that is ready to be masked.

    Args:
        words: uint32[d] (bits <= 32) or uint64[d], each below 2^bits.
        bits: ring width b.
        layout_hash: what the words mean.
        clients: the most vectors whose sum cannot leave the ring.

    Raises:
        EncodingError: the words are of another type, or one is not an element of the ring.
    """

    words: RingArray
    bits: int
    layout_hash: bytes
    clients: int

    def __post_init__(self) -> None:
        words, dtype = self.words, np.dtype(word_type(self.bits))
        if type(words) is not np.ndarray or words.dtype != dtype or words.ndim != 1:
            raise EncodingError(f"a ring of {self.bits} bits is held in a plain {dtype.name}[d]")
        if self.bits < 8 * dtype.itemsize and np.any(words >> dtype.type(self.bits)):
            raise EncodingError(f"a word is not an element of the ring of {self.bits} bits")


def require_fitting(vector: EncodedVector, config: MaskingConfig) -> None:
    """Check a vector against a configuration.

    Raises:
        ProtocolError: another layout, ring or length, or so many clients could leave the ring.
    """
    if (vector.layout_hash, vector.bits, len(vector.words)) != (
        config.layout_hash,
        config.bits,
        config.length,
    ):
        raise ProtocolError("the vector is not of the configured layout, ring and length")
    if vector.clients < config.clients:
        raise ProtocolError(
            f"the layout has room for {vector.clients} clients, the cohort has "
            f"{config.clients}: the sum could leave the ring"
        )


def draw_cohort(beacon: bytes, roster: Roster, clients: int) -> IntArray:
    """The cohort that public randomness draws from the roster.

    Beacon and roster alone make the order in which clients are drawn, and the size is settled
    beforehand at each site (``SitePolicy.cohort_clients``), so the server cannot influence a draw.
    It can let an epoch pass whose draw it dislikes: the bound on corrupt clients holds per epoch.

    Args:
        beacon: public randomness of the epoch before the round's.
        roster: the roster.
        clients: clients to draw, at most those of the roster.

    Returns:
        int64[clients], ascending.

    Raises:
        ConfigError: the roster has fewer clients.
    """
    if not 0 < clients <= len(roster.numbers):
        raise ConfigError("cohort.clients", clients, f"must be between 1 and {len(roster.numbers)}")
    order = permutation(labelled_hash("cohort-draw", beacon, roster.hash), len(roster.numbers))
    return np.sort(roster.numbers[order[:clients]])


def _require_sparse(config: MaskingConfig, safe: MaskingParameters) -> None:
    """A larger degree alone is not safer: it meets more corrupt neighbours. So it must be equal."""
    window = safe.window_least or 0
    if (
        config.degree != safe.degree
        or not safe.threshold_least <= config.threshold <= safe.threshold_most
        or (config.window_least or 0) < window
        or config.min_survivors < safe.min_survivors
    ):
        raise ProtocolError(
            f"SETUP: the graph (degree {config.degree}, threshold {config.threshold}, window "
            f"{config.window_least}, survivors {config.min_survivors}) is not the safe one of this "
            f"site (degree {safe.degree}, threshold {safe.threshold_least} to "
            f"{safe.threshold_most}, window {window}, survivors {safe.min_survivors})"
        )
    # A larger committee is not safer by itself: its quorum would have to grow as well.
    if config.committee != safe.committee or config.quorum < safe.quorum:
        raise ProtocolError(
            f"SETUP: {config.quorum} signatures of {_signers(config.committee)}; this site asks "
            f"for {safe.quorum} of {_signers(safe.committee)}"
        )


def _signers(committee: int | None) -> str:
    return "all clients" if committee is None else f"a committee of {committee}"
