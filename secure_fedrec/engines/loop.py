"""A loop in one process, such as FedAvg over clients' state_dicts, whose average is protected.

    protection = protect(model.state_dict(), clients=DATA, clip=1.0, max_weight=500)
    ...
    states = {client: (local.state_dict(), len(DATA[client])) ...}  # as they were trained
    model.load_state_dict(protection.mean(states, start=model.state_dict()).model)

Every client has keys and a journal of its own here, and every byte of a round goes through both
halves of the masks (``masking.Federation``). With ``epsilon`` every client adds its share of
Skellam noise before that. What is shared, and how, is ``means.MaskedMean`` or
``means.NoisedMean``: terms that a deployment (``distributed.mean_site``, ``flower.mod``) takes as
they are.

Arrays are NumPy's or PyTorch's, and results have the same type. PyTorch is not imported for it.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import Any, Final, TypeVar

import numpy as np

from secure_fedrec.accounting import PrivacyStatement, claim, find_noise_multiplier
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.state_dicts import StateDict, as_arrays, like, with_weight
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    MisfitError,
    PrivateStateError,
    RefusalError,
    SitsOutError,
    renamed_keys,
)
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.masking import (
    EncodedVector,
    Federation,
    Kind,
    RoundOutcome,
    Statement,
    state_hash,
)
from secure_fedrec.protection.masking.config.parameters import share_of
from secure_fedrec.protection.means import MaskedMean, NoisedMean, ProtectedMean, Update
from secure_fedrec.protection.session.statement import SOFTWARE

__all__ = ["Protection", "RoundMean", "protect"]

Terms = TypeVar("Terms", MaskedMean, NoisedMean)

log = logging.getLogger("secure-fedrec")

_OWN: Final = frozenset({"beacon", "clip", "noise_multiplier", "rounds", "metrics", "keeps_state"})
"""Settings of the terms that are arguments of ``protect``, or have no effect in one process."""

_SENT: Final = (Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM, Kind.REVEAL)
"""Messages of a round that clients send."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundMean:
    """The result of a round.

    Args:
        model: the state_dict that the round began with, moved by the mean; arrays that are not
            shared are those it began with.
        clients: int64[k], ascending: the clients in the mean.
        missing: why each other client of the round is not in it, by number.
        weight: sum of the weights in it; under noise the number of clients.
        round: its number, from 1.
    """

    model: dict[str, Any]
    clients: IntArray
    missing: Mapping[int, str]
    weight: int
    round: int


class Protection:
    """Protected averages of one loop; ``protect`` makes one from a few arguments.

    Args:
        model: the state_dict, as before training; its values are not used.
        terms: which arrays are shared, and how.
        clients: their numbers.
        cohort: clients in a round, where a loop chooses some of them; by default all. Terms with an
            active server require all clients.
        delta: delta of the price; with noise alone.

    Attributes:
        terms: as given.
        shared: the arrays of the model that are summed; the others stay at the client.
        federation: the keys of all parties.
        rounds: rounds begun. An abandoned round counts, since its vectors may have been sent.

    Raises:
        ConfigError: clients repeat, the terms do not fit them or the model, a cohort that cannot
            be, or noise without ``delta``.
        EncodingError: a value of an array that is shared is not finite.
    """

    def __init__(
        self,
        model: StateDict,
        terms: ProtectedMean,
        *,
        clients: Iterable[int],
        cohort: int | None = None,
        delta: float | None = None,
    ) -> None:
        self.terms, self._delta, self.rounds = terms, delta, 0
        if isinstance(terms, NoisedMean) == (delta is None):
            raise ConfigError("protection.delta", delta, "goes with noise, and noise with it")
        if delta is not None:
            _require_share("delta", delta)
        self.shared = terms.select(as_arrays(model))
        self.federation = Federation(_numbers(clients), policy=terms.policy)
        numbers = self.federation.roster.numbers
        self._size = len(numbers) if cohort is None else _whole("cohort", cohort)
        most = len(numbers)
        if not 2 <= self._size <= most:
            raise ConfigError("protection.cohort", cohort, f"must be between 2 and {most}")
        if self._size < most and terms.adversary == "active":
            problem = "an active server must not choose who is in a round: take all clients, or"
            raise ConfigError("protection.adversary", terms.adversary, problem, ("curious",))
        terms.config(self._standing(model, numbers[: self._size], 0), self.shared)
        self._claim(1)  # noise without a price is refused before anything is trained

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles: each would spend the budget of the same clients again.

        Raises:
            PrivateStateError: always; a kind of ``TypeError``.
        """
        raise PrivateStateError(
            "a Protection must not be copied or pickled: its clients have one budget, and answer "
            "once for each model; pass the object itself on"
        )

    @property
    def price(self) -> PrivacyStatement | None:
        """What the rounds begun so far have cost; None before the first, and without noise.

        It is the price of each client's whole contribution against the server, which sees who
        takes part: so choosing clients at random does not make it smaller.
        """
        return self._claim(self.rounds) if self.rounds else None

    @property
    def budget(self) -> PrivacyStatement | None:
        """The privacy cost of all agreed rounds; None without noise."""
        return self._claim(self.terms.rounds or 0)

    def mean(
        self,
        updates: Mapping[int, StateDict | tuple[StateDict, int]],
        *,
        start: StateDict,
        drops: Mapping[int, Kind] | None = None,
    ) -> RoundMean:
        """One round: the model changed by the protected mean of the clients' changes.

        Clients that hand in nothing, or have weight 0, are left out before the round: the mean is
        that of the others; the result and a warning in the log state who is missing.

        Args:
            updates: the state_dict that each client has after training, by number, and its weight,
                a whole number; 1 without one. Noise does not allow weights, since all count
                equally.
            start: the state_dict that they all began with. Against an active server a client
                answers only once per start.
            drops: for simulations: clients that vanish in the middle of a round, and the message
                that each is the first not to send. A client named here without an update was
                chosen for the round and has dropped out.

        Raises:
            ConfigError: a client is not one of this federation, the round is not of so many clients
                as were settled, a weight was given under noise, or an argument is of another kind.
                The round does not count.
            MisfitError: an array is missing, unknown, of another shape, or of no floats, or
                ``start`` differs from the model that was protected; names client and array.
            EncodingError: a value is not finite, or it or a weight is beyond what was settled;
            names client and array. Then no vector of the round was masked.
            RefusalError: all rounds that the noise was made for have been run.
            ProtocolError: too few clients were left; the round gives no result.
        """
        most = self.terms.rounds
        if most is not None and self.rounds >= most:
            problem = "noised rounds were begun, as many as protection.rounds allows"
            raise RefusalError(f"the budget is spent: {most} {problem}")
        gone: Mapping[int, Any] = {} if drops is None else drops
        _require_tables(updates=updates, start=start, drops=gone)
        for client, kind in gone.items():
            if not isinstance(kind, Kind):
                problem = f"is not a message that client {client} could fail to send first"
                raise ConfigError("drops", kind, problem, [f"Kind.{each.name}" for each in _SENT])
        before = as_arrays(start)
        if self.terms.select(before) != self.shared:
            raise MisfitError("start differs from the model that was protected")
        at = self._standing(start, self._invited({*updates, *gone}), self.rounds + 1)
        config = self.terms.config(at, self.shared)
        vectors, out = self._encoded(updates, before, at)
        self.rounds += 1
        outcome = self.federation.sum(
            config,
            vectors,
            statement=at.statement.known,
            drops={client: kind for client, kind in gone.items() if client in vectors},
            absent=sorted(set(at.clients.tolist()) - set(vectors)),
        )
        mean = self.terms.decode(outcome.words, at, self.shared, survivors=len(outcome.survivors))
        moved = self.shared.moved_by(before, mean.arrays)
        after = {name: like(start[name], moved[name]) for name in self.shared.shapes}
        found = RoundMean(
            model={name: after.get(name, value) for name, value in start.items()},
            clients=outcome.survivors,
            missing=_missing(at.clients, outcome, vectors, out),
            weight=mean.weight,
            round=self.rounds,
        )
        if found.missing:
            why = "; ".join(f"client {client}: {each}" for client, each in found.missing.items())
            log.warning("round %d is without %s", found.round, why)
        return found

    def _invited(self, named: set[int]) -> IntArray:
        """int64[n], ascending: the clients of a round in which some are named.

        Raises:
            ConfigError: one is unknown, or it is another number of clients than was settled.
        """
        there = self.federation.roster.numbers
        unknown = sorted(named - set(there.tolist()), key=str)
        if unknown:
            raise ConfigError(
                "updates.client", unknown[0], "is not one of this federation's clients"
            )
        if self._size == len(there):
            return there
        if len(named) != self._size:
            problem = (
                f"a round is of {self._size} clients (protection.cohort); name in drops those that "
                "were chosen and are gone"
            )
            raise ConfigError("updates.clients", len(named), problem)
        return np.array(sorted(named), dtype=np.int64)

    def _encoded(
        self,
        updates: Mapping[int, StateDict | tuple[StateDict, int]],
        before: StateDict,
        at: Standing,
    ) -> tuple[dict[int, EncodedVector], dict[int, str]]:
        """Words of the clients that take part, and reasons why others do not."""
        vectors, out = {}, {}
        for client, handed in updates.items():
            try:
                state, weight = with_weight(handed)
                update = self._update(before, state, weight)
                vectors[client] = self.terms.encode(update, at, self.shared)
            except SitsOutError:
                out[client] = "has weight 0"
            except EncodingError as refused:
                raise type(refused)(f"client {client}: {refused}") from None
        return vectors, out

    def _update(self, before: StateDict, state: StateDict, weight: int) -> Update:
        if isinstance(weight, bool) or not isinstance(weight, int | np.integer):
            raise MisfitError(f"a weight is a whole number, not {type(weight).__name__}")
        if not self.terms.weighted and weight != 1:
            problem = "must be left out under noise, where all clients count alike"
            raise ConfigError("updates.weight", weight, problem)
        if weight < 0:
            raise EncodingError(f"a weight of {weight} is below 0")
        return Update(arrays=self.shared.moved(before, as_arrays(state)), weight=int(weight))

    def _standing(self, start: StateDict, clients: IntArray, number: int) -> Standing:
        roster = self.federation.roster
        name = sha256(b"secure-fedrec|v1|loop|" + roster.operator + self.terms.digest).digest()
        return Standing(
            round=number,
            serial=number,
            clients=clients,
            present=clients,
            statement=Statement(
                federation=name,
                state=state_hash(self.shared.of(as_arrays(start))),
                round=number,
                settings=self.terms.digest,
                code=SOFTWARE,
            ),
            series=name[:16],
            roster=roster,
        )

    def _claim(self, rounds: int) -> PrivacyStatement | None:
        if not isinstance(self.terms, NoisedMean) or self._delta is None:
            return None
        spent = replace(self.terms, rounds=rounds)
        events = spent.events(clients=self._size, length=self.shared.length)
        return claim(events, adversary="server", delta=self._delta)


def protect(
    model: StateDict,
    *,
    clients: int | Iterable[int],
    clip: float | Mapping[str, float],
    rounds: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    cohort: int | None = None,
    **settings: Any,
) -> Protection:
    """Protect the average of a loop by masks and, with ``epsilon``, by noise within that budget.

    Args:
        model: the state_dict, as it is before training.
        clients: their numbers, or how many there are (0, 1, ...).
        clip: without noise, the largest change of one value in a round, or one per array by
            pattern; larger changes are refused. With noise, the L2 norm to which a client's whole
            contribution is shortened.
        rounds: rounds that the budget is for; one more is refused. Required with ``epsilon``, and
            not allowed without.
        epsilon: budget of each client over all rounds, against a server that sees who takes part.
        delta: probability that is left out of it; required with ``epsilon``, and not allowed
            without.
        cohort: as of ``Protection``.
        **settings: of ``MaskedMean`` or, with ``epsilon``, of ``NoisedMean``: ``shared`` and
            ``private``, patterns of names (by default all arrays of floats but BatchNorm's
            statistics are shared); ``max_weight`` of a client, by default 1; ``dropout``, the
            largest share of clients that a round may lose, and ``corrupt``, that may work with the
            server, 0.1 each; ``adversary``, ``min_survivors``, ``fraction_bits``, ``ring_bits``.
            ``min_survivors`` is by default what ``dropout`` leaves of a round.

    Returns:
        The object whose ``mean`` replaces the average in the loop (``Protection.mean``).

    Raises:
        ConfigError: a setting is unknown, missing or out of range, no noise keeps to the budget, or
            as ``Protection``.
        EncodingError: a value of an array that is shared is not finite.
    """
    numbers = _numbers(range(clients) if isinstance(clients, int) else clients)
    size = len(numbers) if cohort is None else _whole("cohort", cohort)
    _require_tables(model=model)
    for name, figure in (("rounds", rounds), ("delta", delta)):
        if (figure is None) != (epsilon is None):
            raise ConfigError(f"protection.{name}", figure, "and epsilon must be given together")
    terms: ProtectedMean
    if epsilon is None or rounds is None or delta is None:
        terms = _settled(MaskedMean, size, {"max_weight": 1, **settings}, clip=clip)
    else:
        _require_share("delta", delta)
        if not _is_number(epsilon) or epsilon <= 0:
            raise ConfigError("protection.epsilon", epsilon, "must be a number above 0")
        terms = _settled(NoisedMean, size, settings, clip=clip, noise_multiplier=1.0, rounds=rounds)
        terms = _within(terms, size, terms.select(as_arrays(model)).length, epsilon, delta)
    return Protection(model, terms, clients=numbers, cohort=cohort, delta=delta)


def _numbers(clients: Iterable[int]) -> list[int]:
    """Numbers of clients.

    Raises:
        ConfigError: one is not a whole number, or nothing that has numbers is given.
    """
    if isinstance(clients, str | bytes) or not isinstance(clients, Iterable):
        problem = "is neither a number of clients nor their numbers"
        raise ConfigError("protection.clients", clients, problem)
    found: list[Any] = list(clients)
    for each in found:
        if isinstance(each, bool) or not isinstance(each, int):
            raise ConfigError("protection.clients", each, "is not a number: number your clients")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_share(name: str, value: Any) -> None:
    """Refuse what is not a probability strictly between 0 and 1.

    Raises:
        ConfigError: the value is out of range.
    """
    if not _is_number(value) or not 0 < value < 1:
        raise ConfigError(f"protection.{name}", value, "must be between 0 and 1")


def _whole(name: str, value: Any) -> int:
    """A setting that is a whole number.

    Raises:
        ConfigError: the value is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"protection.{name}", value, "must be a whole number")
    return int(value)


def _require_tables(**told: object) -> None:
    """Refuse arguments that are not mappings.

    Raises:
        ConfigError: an argument is not a mapping; names it.
    """
    for name, value in told.items():
        if not isinstance(value, Mapping):
            raise ConfigError(name, type(value).__name__, "must be a mapping")


def _settled(kind: type[Terms], size: int, settings: Mapping[str, Any], **own: Any) -> Terms:
    """Terms of rounds of that many clients, with the given settings.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    known = sorted({field.name for field in fields(kind)} - _OWN)
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(f"protection.{name}", value, "is not a setting here", known)
    terms = kind(**own, **settings)
    if terms.adversary == "active":
        terms = replace(terms, beacon="operator")  # this process publishes the beacon
    if "min_survivors" in settings:
        return terms
    return replace(terms, min_survivors=max(2, size - share_of(terms.dropout, size)))


def _within(
    terms: NoisedMean, clients: int, length: int, epsilon: float, delta: float
) -> NoisedMean:
    """Terms with the least noise that keeps to a budget.

    Raises:
        ConfigError: the budget is too small for any noise.
    """
    with renamed_keys({"dp": "protection"}):
        multiplier = find_noise_multiplier(
            lambda m: replace(terms, noise_multiplier=m).events(clients=clients, length=length),
            epsilon=epsilon,
            delta=delta,
            adversary="server",
        )
    return replace(terms, noise_multiplier=multiplier)


def _missing(
    invited: IntArray, outcome: RoundOutcome, vectors: Iterable[int], out: Mapping[int, str]
) -> dict[int, str]:
    """Why clients are not in a sum: their own reason, the server's, or that they fell silent."""
    silent = dict.fromkeys(vectors, "fell silent in the middle of the round")
    why = {**silent, **outcome.dropped, **outcome.aborted, **out}
    absent = sorted(set(invited.tolist()) - set(outcome.survivors.tolist()))
    return {client: why.get(client, "handed in nothing") for client in absent}
