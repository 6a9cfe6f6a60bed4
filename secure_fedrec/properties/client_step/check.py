"""Checks that a client's real step keeps private values at home.

Client steps are functions: with several optimisers, schedules, weight decay, copies of a model, an
engine that keeps a state per client. ``check_client_step`` runs such a function unchanged, and
judges what it really sends and leaves behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from torch import nn
from tqdm import tqdm

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.asserting import asserting
from secure_fedrec.properties.client_step.interference import ALL_KINDS, Interference
from secure_fedrec.properties.client_step.leaving import Leaving, own_values
from secure_fedrec.properties.client_step.report import WRITES, ClientReport
from secure_fedrec.properties.client_step.running import Steps, Train
from secure_fedrec.properties.client_step.states import Clients, OneModel, OwnStates, State, User
from secure_fedrec.properties.split.evaluation import require_callable, with_gradients
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import matches
from secure_fedrec.properties.split.trials import Trial


def check_client_step(
    train: Train,
    *,
    clients: Callable[[Any], object] | Mapping[Any, object] | Sequence[object] | nn.Module,
    private: Sequence[str],
    uploads: Sequence[str],
    users: Iterable[User],
    downloads: object = None,
    read: Callable[[Any], object] = lambda sent: sent,
    trials: int = 9,
    seed: int = 0,
    scale: float = 0.5,
) -> ClientReport:
    """Run a client's real step with random private values, and judge what it sends and changes.

    Args:
        train: user -> what that client sends; one local training, without the server's step.
        clients: user -> the live state of that client: a module, a mapping of tensors or arrays
            (as deep as it is), or an object that holds them; or these states by user. Or one
            module of all users, who are then numbered from 0. All states are restored at the end.
        private: patterns of names in that state whose values must not be sent, ``*`` for any part
            of a name; for one module of all users as in ``check_split_personalization``.
        uploads: patterns of the names that may be sent.
        users: at least two clients. A few are enough.
        downloads: what the server gives to all clients (an object with arrays, or a function that
            finds it), restored before every training. For one module of all users these are the
            parameters that ``uploads`` names.
        read: converts what ``train`` returns to arrays by name, if it is bytes or has no names.
        trials: how many; trial k is a function of ``seed + k`` alone.
        seed: seed of the first trial.
        scale: standard deviation of random private values.

    Returns:
        The findings; ``report.require()`` raises unless everything holds.

    Raises:
        ConfigError: a pattern of ``private`` matches nothing, there are less than two users, a
            state cannot be written, or there is no trial to run.
    """
    found = clients.__getitem__ if isinstance(clients, (Mapping, list, tuple)) else clients
    require_callable(train=train, clients=found, read=read)
    private, uploads, everybody = _patterns(private), _patterns(uploads), _users(users)
    _require_numbers(trials, seed, scale)
    states, given = _states(found, private, uploads, downloads, everybody)
    try:
        memory = Memory(train, clients, downloads, read)
        steps = Steps(train, read, everybody, states, given, memory)
    except LookupError as missing:
        problem = "lack the state of a client: let each of them train once before"
        raise ConfigError("clients", missing.args, problem) from missing
    names = sorted({name for values in steps.origin.values() for name in values})
    for user, values in steps.origin.items():
        if not values:
            problem = f"match no array in the state of client {user!r}"
            raise ConfigError("private", private, problem, sorted(states.kept(user)))
    report = ClientReport(users=everybody, trials=trials, seed=seed, private=tuple(names))
    try:
        with with_gradients():
            _search(
                steps, Leaving(steps=steps, private=private, uploads=uploads, report=report), scale
            )
    finally:
        steps.put_back()
    return report


@asserting(check_client_step)
def assert_client_step(report: ClientReport) -> None:
    """Fail unless a client's step holds; a test in one line.

    Takes the arguments of ``check_client_step``.

    Raises:
        SplitPersonalizationError: names the values that reach the server or another client, and
            what could not be tested.
        ConfigError: see ``check_client_step``.
    """
    report.require()


def _search(steps: Steps, leaving: Leaving, scale: float) -> None:
    report = leaving.report
    first = Trial(seed=report.seed, scale=scale, users=(), kinds=())
    for owner, name, other in steps.shared(own_values(steps, first, "own")):
        reaches = "both share memory"
        report.violate(WRITES, name, (owner, other), reaches, report.seed)
    if report.refuted:
        return
    leaving.look(first)
    broken: set[User] = set()
    for seed in tqdm(
        range(report.seed, report.seed + report.trials), "trials", leave=False, disable=None
    ):
        kinds = tuple(ALL_KINDS[(2 * seed + place) % len(ALL_KINDS)] for place in range(2))
        trial = Trial(seed=seed, scale=scale, users=(), kinds=kinds)
        Interference(steps=steps, trial=trial, report=report, broken=broken).search()


def _states(
    clients: Any,
    private: Sequence[str],
    uploads: Sequence[str],
    downloads: object,
    users: tuple[User, ...],
) -> tuple[Clients, State]:
    if isinstance(clients, nn.Module):
        model = OneModel(clients, private)
        if not set(users) <= set(range(model.n_users)):
            raise ConfigError("users", users, f"are numbered from 0 to {model.n_users - 1}")
        return model, State(
            lambda: {name: each for name, each in model.tensors.items() if matches(name, uploads)}
        )
    find = downloads if callable(downloads) and not isinstance(downloads, nn.Module) else None
    given = State(find or (lambda: downloads))
    if downloads is not None:
        _require_arrays(given, downloads)
    return OwnStates(clients, private), given


def _require_arrays(given: State, downloads: object) -> None:
    problem = (
        "must hold arrays, or be a function without arguments that returns an object with arrays"
    )
    try:
        found = given.values()
    except TypeError as failure:
        raise ConfigError("downloads", type(downloads).__name__, problem) from failure
    if not found:
        raise ConfigError("downloads", type(downloads).__name__, problem)


def _users(given: object) -> tuple[User, ...]:
    users = tuple(given) if isinstance(given, Iterable) else ()
    if len(set(users)) < 2 or len(set(users)) < len(users):
        raise ConfigError("users", given, "must be at least 2 different clients")
    return users


def _require_numbers(trials: object, seed: object, scale: object) -> None:
    whole = all(isinstance(each, Integral) for each in (trials, seed))
    if not whole or not isinstance(scale, Real):
        problem = "must be two whole numbers and a number"
    elif trials < 1 or seed < 0 or not 0 < scale < float("inf"):  # type: ignore[operator]
        problem = "need a trial, a seed of at least 0, and a positive, finite scale"
    else:
        return
    raise ConfigError("trials, seed, scale", (trials, seed, scale), problem)


def _patterns(given: Sequence[str]) -> tuple[str, ...]:
    patterns = (given,) if isinstance(given, str) else tuple(given)
    if not patterns or not all(isinstance(each, str) for each in patterns):
        raise ConfigError("private, uploads", patterns, "must be patterns of names")
    return patterns
