"""Constraint (1), independent local training: losses do not depend on others' private values.

FURL states it of the loss, and as a corollary of gradients: those on every other user's private
parameters are zero (eq. 1). Neither covers side effects of training. So the constraint is tested as
non-interference, too: user j trains with private values A, or with values B; all tensors are put
back; then user i takes real steps, while other users' private values are A or B. All results of i
must have the same bits. The same when j trained or did not. A value may cross without a gradient
(``detach``), by a federated parameter or the user's own row that a layer writes, or by any other
memory of the model, which constraint (2) on aggregation does not cover.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import torch
from torch import Tensor

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.drawing import BASE, StateDraws
from secure_fedrec.properties.split.evaluation import LOSS, Loss
from secure_fedrec.properties.split.interference import Interference
from secure_fedrec.properties.split.local_training import Inspection
from secure_fedrec.properties.split.locating import (
    Crossing,
    Located,
    Write,
    located,
    located_write,
    mixed,
)
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import SplitModel, Values
from secure_fedrec.properties.split.random import Batches, noise_like
from secure_fedrec.properties.split.report import Findings
from secure_fedrec.properties.split.scales import MISSING
from secure_fedrec.properties.split.traces import (
    Digests,
    LocalTraces,
    Setting,
    differing,
)
from secure_fedrec.properties.split.trials import Trial, equal_bits, largest_change

_PAIRS: Final = 64  # users up to which every pair is named
_NAMED: Final = 16  # users of a trial whose values are looked for in a buffer
_SMALLER: Final = 4
_TIMES_SMALLER: Final = 3


class _Begun(NamedTuple):
    """A trial whose users have trained once.

    Args:
        trial: which.
        traces: runs trainings of it.
        base: state with others' values of one draw.
        fresh: what the trainings ended with.
        inspections: what else was seen of them.
    """

    trial: Trial
    traces: LocalTraces
    base: Values
    fresh: Digests
    inspections: dict[int, Inspection]

    @property
    def finite(self) -> bool:
        """Whether all of them can be compared, or failed for another reason."""
        return all(each.finite or each.failed for each in self.inspections.values())


class _Found(NamedTuple):
    """Data of a trial for locating a crossing.

    Args:
        trial: which.
        traces: runs trainings of it.
        base: state with others' values of one draw.
        changed: states with other ones.
    """

    trial: Trial
    traces: LocalTraces
    base: Values
    changed: Sequence[Values]


class LocalTrials:
    """Trials of constraint (1).

    Args:
        split: the model.
        loss: loss of one user.
        batches: draws a batch.
        findings: where violations go.
    """

    def __init__(self, split: SplitModel, loss: Loss, batches: Batches, findings: Findings) -> None:
        self._split = split
        self._loss = loss
        self._batches = batches
        self._findings = findings
        self._draws = StateDraws(split, findings.drawn)
        self._memory = Memory(split.model, loss, parameters=split.tensors.originals().values())
        tensors = split.tensors
        self._trained = {name for name in split.federated if tensors[name].requires_grad}
        self._trained_slots = tuple(
            slot.name
            for slot in split.slots
            if any(tensors[source].requires_grad for source in slot.sources)
        )
        self._first = True
        self._disturbed: set[int] = set()  # already reported
        self._reached: set[str] = set()
        # Per trained slot: which users were tested, and whether their own loss reached it.
        self._reached_own: dict[str, dict[int, bool]] = {name: {} for name in self._trained_slots}

    def run(self, trial: Trial) -> None:
        """Test the users of a trial on random parameters and random batches.

        If they are too large for a model with products of parameters, such as a hypernetwork,
        smaller ones are tried.
        """
        scales = [trial.scale / _SMALLER**power for power in range(_TIMES_SMALLER + 1)]
        sizes = (self._begin(replace(trial, scale=scale)) for scale in scales)
        fits = next((each for each in sizes if each.finite), None)
        trial, traces, base, fresh, inspections = fits or self._begin(trial)
        start = traces.begun
        if trial.scale != scales[0]:
            self._findings.advise(
                f"losses or gradients are not finite where values are drawn at a scale of "
                f"{scales[0]:g}: tried at {trial.scale:g} in its place (seed {trial.seed})"
            )
        for user, inspection in inspections.items():
            if inspection.failed:
                self._require_alone(traces, base, user)
        for leaf in self._memory.trained():
            self._leave_leaf(leaf)
        changed = [
            self._draws.others(trial, start, kind, f"others.{place}", earlier=True)
            for place, kind in enumerate(trial.kinds)
        ]
        found = _Found(trial, traces, base, changed)
        judged = {user for user in trial.users if self._judge(found, user, inspections[user])}
        sound = sorted(judged.difference(self._disturbed))
        if sound:
            earlier = self._draws.others(trial, start, BASE, "others", earlier=True)
            search = Interference(self._split, traces, self._findings, trial, base, earlier)
            search.search({user: fresh[user] for user in sound}, changed)
            self._disturbed |= search.broken
        self._judge_writes(found)
        sound = [user for user in sound if user not in self._disturbed]
        if sound:
            self._search_related(trial, start, sound)
        if self._first and not self._findings.violations and not self._findings.gaps:
            self._first = False
            missing = self._draws.others(trial, start, MISSING, "missing")
            self._advise(sound, traces, base, missing)

    def _require_alone(self, traces: LocalTraces, base: Values, user: int) -> None:
        """Raise a model's own error, without other users; an index error may be the check's."""
        try:
            traces.require_alone(base, user)
        except IndexError as failure:
            problem = (
                f"fails with {type(failure).__name__}: {failure}. Do the private tensors count the "
                "users, a row or a module for each, and are the indices of the batch in range?"
            )
            whose = f"of user {user} of {self._split.n_users}"
            raise ConfigError("loss", whose, problem) from failure

    def _begin(self, trial: Trial) -> "_Begun":
        """Train every user of a trial, with only the users ahead of it before."""
        self._memory.restore()
        start = self._draws.start(trial)
        base = self._draws.others(trial, start, BASE, "others")
        traces = LocalTraces(self._split, self._loss, self._batches, self._memory, trial, start)
        inspections: dict[int, Inspection] = {}
        fresh = traces.digests(base, readers=trial.users, inspections=inspections)
        return _Begun(trial, traces, base, fresh, inspections)

    def find_ties(self, seed: int) -> None:
        """Find federated parameters in the memory of private ones, and users who share a tensor."""
        split = self._split
        before = split.state()
        for name in split.aliases:
            self._findings.advise(
                f"{name!r} is a private tensor under another name, and is taken for private: where "
                "it stands for something that is not, give that a tensor of its own"
            )
        self._find_shared(seed)
        for name in split.federated:
            split.load({name: before[name] + 1})
            for slot in split.own:
                for owner in self._owners_changed(slot.sources, before, slot.is_table):
                    old, new = slot.part(before, owner), slot.part(split.tensors, owner)
                    reaches = f"the federated {name!r}, which all users train, is the same memory"
                    size = largest_change({name: old}, {name: new})[1]
                    self._findings.violate(
                        1, slot.name, (owner, int(owner == 0)), reaches, size, seed
                    )
            split.load(before)

    def _find_shared(self, seed: int) -> None:
        """Find users who have one tensor, such as one head that stands in a list twice."""
        for slot in self._split.own:
            owners: dict[tuple[int, int], int] = {}
            for user, source in enumerate(() if slot.is_table else slot.sources):
                owner = owners.setdefault(self._split.tensors.key(source), user)
                if owner != user:
                    reaches = "both users have the same tensor"
                    self._findings.violate(1, slot.name, (owner, user), reaches, 1.0, seed)

    def finish(self) -> None:
        """Report untested private parameters, without a gradient from any loss, as gaps."""
        self._memory.restore()
        if any(each.constraint == 1 for each in self._findings.violations):
            self._findings.advise(
                "after a violation of (1) a user is not looked at further, and what else reaches "
                "it may be missing here: mend it, and run again"
            )
        for name in sorted(self._trained - self._reached):
            self._findings.leave_open(name, "is reached by no loss")
        for name, users in self._reached_own.items():
            unreached = sorted(user for user, reached in users.items() if not reached)
            if unreached:
                problem = f"is not reached by the losses of its own users {unreached}"
                self._findings.leave_open(name, problem)

    def _owners_changed(self, sources: Sequence[str], before: Values, table: bool) -> list[int]:
        """The users whose part of a slot has changed."""
        tensors = self._split.tensors
        if not table:
            return [
                owner
                for owner, source in enumerate(sources)
                if not torch.equal(tensors[source], before[source])
            ]
        changed = (tensors[sources[0]] != before[sources[0]]).reshape(self._split.n_users, -1)
        found: list[int] = changed.any(1).nonzero().reshape(-1).tolist()
        return found

    def _search_related(self, trial: Trial, start: Values, readers: Sequence[int]) -> None:
        """Whether it matters that others' values are related to those of a reader.

        All readers begin with the same values here, so that one state is related to all of them.
        """
        begun = self._draws.twins(trial, start)
        base = self._draws.others(trial, begun, BASE, "others")
        earlier = self._draws.others(trial, begun, BASE, "others", earlier=True)
        related = self._draws.related(trial, begun, earlier)
        traces = LocalTraces(self._split, self._loss, self._batches, self._memory, trial, begun)
        fresh = traces.digests(base, readers=readers)
        search = Interference(self._split, traces, self._findings, trial, base, earlier)
        search.search_related(fresh, related)
        self._disturbed |= search.broken
        self._judge_writes(_Found(trial, traces, base, [related]))

    def _judge(self, found: "_Found", user: int, inspection: Inspection) -> bool:
        """Judge a single training; returns whether it can be compared with others."""
        if inspection.leaf is not None:
            self._leave_leaf(inspection.leaf)
        if inspection.failed:  # it fails only after other users' training
            return True
        broken = self._judge_gradients(found, user, inspection.gradients)
        if not inspection.finite:
            if not broken:
                problem = (
                    f"of user {user}, a gradient of it, or what it writes, is not finite: where "
                    "that is the size of the values, pass smaller scales="
                )
                self._findings.leave_open(LOSS, problem, found.trial.seed)
            return False
        self._reached |= inspection.reached
        for name in self._trained_slots:
            before = self._reached_own[name].get(user, False)
            self._reached_own[name][user] = before or name in inspection.reached
        return not broken

    def _leave_leaf(self, leaf: Tensor) -> None:
        subject = f"a tensor of shape {tuple(leaf.shape)}"
        problem = (
            "gets a gradient and is not a parameter of the model: register it (nn.Parameter, "
            "nn.ModuleList), or detach it"
        )
        self._findings.leave_open(subject, problem)

    def _judge_gradients(self, found: "_Found", user: int, gradients: Values) -> bool:
        """Eq. 1: whether another user's private parameters have a gradient, NaN included."""
        broken = False
        for name, sizes in gradients.items():
            owners = [each for each in torch.nonzero(sizes != 0)[:, 0].tolist() if each != user]
            if self._split.n_users > _PAIRS:
                owners = owners[:1]
            for owner in owners:
                broken = True
                reaches = "that user's loss has a gradient on it"
                self._findings.violate(
                    1,
                    name,
                    (owner, user),
                    reaches,
                    float(sizes[owner]),
                    found.trial.seed,
                    locate=partial(self._locate_gradient, found, name, owner, user),
                )
        return broken

    def _locate_gradient(self, found: "_Found", name: str, owner: int, reader: int) -> Located:
        """Locate the line from which a gradient comes."""
        (slot,) = (slot for slot in self._split.slots if slot.name == name)
        there = mixed(found.base, found.changed[0], [(slot, owner)])
        one, other = (Setting(each, (), each, reader) for each in (found.base, there))
        return located(found.traces, Crossing(one, other, owner))

    def _judge_writes(self, found: "_Found") -> None:
        """Besides shared parameters, a user's training may write only its own values."""
        seed = found.trial.seed
        # A buffer is written in every training, so only each user's first write is looked at.
        first: dict[tuple[int, str, int | None], float] = {}
        behind_of: dict[str, list[str | None]] = {}
        for user, name, owner, size in found.traces.overwritten:
            first.setdefault((user, name, owner), size)
        for (user, name, owner), size in first.items():
            locate = partial(self._locate_write, found, user, name, owner)
            if owner is None:
                behinds = behind_of.setdefault(name, [])
                if len(behinds) < _NAMED:
                    behinds.append(self._behind(found, user, name))
                behind = behinds[-1]
                reaches = (
                    f"local training writes into {'this' if behind is None else 'the'} buffer"
                    f"{'' if behind is None else f' {name!r}'}, which every user's model holds: "
                    "make it private, or keep its layer in eval() while the model is in train()"
                )
                users = (user, int(user == 0))
                self._findings.violate(1, behind or name, users, reaches, size, seed, locate=locate)
            elif owner != user:
                reaches = "that user's local training overwrites it"
                self._findings.violate(1, name, (owner, user), reaches, size, seed, locate=locate)

    def _behind(self, found: "_Found", user: int, buffer: str) -> str | None:
        """The private parameter that a user's training leaves in a buffer of all.

        The optimiser takes no steps here: after one step, every parameter would depend on all
        trained values. Leaks found in the first step are reported before leaks through a memory.
        """
        begun, draw = found.traces.begun, found.trial.generator("behind")
        still = found.traces.still()
        for traces in (still.shortened(steps=1), still):
            expected = traces.left(found.base, user, buffer)
            for slot in self._split.slots:
                mine = slot.part(begun, user)
                for other in () if slot.buffer else (mine + noise_like(mine, 1.0, draw), -mine):
                    moved = mixed(begun, begun, [(slot, user)])
                    slot.part(moved, user).copy_(other)
                    left = traces.beginning(moved).left(found.base, user, buffer)
                    if not equal_bits(left, expected):
                        return slot.name
        return None

    def _locate_write(self, found: "_Found", user: int, name: str, owner: int | None) -> Located:
        """Locate the line where a training writes values that are not its own."""
        states = (found.base, *found.changed)
        return located_write(found.traces, states, Write(user, name, owner), found.trial.users)

    def _advise(
        self, readers: Sequence[int], traces: LocalTraces, base: Values, missing: Values
    ) -> None:
        """Test whether a NaN in another user's values would be read."""
        met = differing(*(traces.digests(state, readers=readers) for state in (base, missing)))
        if met:
            self._findings.advise(
                f"a NaN among other users' private values would reach the local training of user "
                f"{met[0]}: by a product (0 * NaN is NaN), so select by index; or by a look at "
                "them (isnan, isfinite), so look at the user's own"
            )
