"""Random states of a model: the start of readers, and values of all other users."""

from collections import Counter
from typing import Final

import torch
from torch import Tensor

from secure_fedrec.properties.split.model import SplitModel, Values, parts_of
from secure_fedrec.properties.split.random import is_exact, noise_like
from secure_fedrec.properties.split.relations import Across, related
from secure_fedrec.properties.split.scales import NORMAL, drawn, sign_of
from secure_fedrec.properties.split.trials import Trial

BASE: Final = "base"
"""The kind of others' values with which all other kinds are compared."""


class StateDraws:
    """Draws states of a trial, through the model, so that tensors that share memory agree.

    Args:
        split: the model; used in place, and left at what was drawn last.
        kinds: counts what others' values were drawn as.
    """

    def __init__(self, split: SplitModel, kinds: Counter[str]) -> None:
        self._split = split
        self._kinds = kinds
        self._origin = split.state()
        self._trained = {name for name in split.federated if split.tensors[name].requires_grad}

    def start(self, trial: Trial) -> dict[str, Tensor]:
        """The model's state, with random values in all that is trained or private."""
        generator = trial.generator("start")
        names = [name for name in self._split.federated if name in self._trained]
        names += [name for slot in self._split.own if not slot.buffer for name in slot.sources]
        self._split.load(self._origin)
        self._split.load(
            {name: noise_like(self._origin[name], trial.scale, generator) for name in names}
        )
        return self._split.state()

    def others(
        self, trial: Trial, start: Values, kind: str, purpose: str, *, earlier: bool = False
    ) -> dict[str, Tensor]:
        """The same, with other private values of one kind for all users except a reader.

        Integers are those of the model, which may use them as indices.

        Args:
            trial: seeds.
            start: what a reader trains on.
            kind: how large the values are.
            purpose: equal for states with equal private values.
            earlier: whether federated values also differ, as in another round.
        """
        generator = trial.generator(purpose)
        sign = 0 if kind == BASE else sign_of(trial.seed)
        name = NORMAL if kind == BASE else kind
        how = drawn(name, self._split.n_users, generator, sign=sign, variant=sign > 0)
        if kind != BASE:
            self._kinds.update(how.kinds)
        values = {
            source: how.values(
                self._origin[source], trial.scale, generator, None if slot.is_table else user
            )
            for slot in (self._split.slots if kind == BASE else self._split.own)
            for user, source in enumerate(slot.sources)
        }
        if earlier:
            draw = trial.generator(f"{purpose}.federated")
            names = [name for name in self._split.federated if name in self._trained]
            values |= {name: noise_like(self._origin[name], trial.scale, draw) for name in names}
        self._split.load(start)
        # -0.0 + 0.0 is 0.0: a step that adds nothing would turn the sign of a zero.
        self._split.load({n: v if is_exact(v) else v + 0.0 for n, v in values.items()})
        return self._split.state()

    def twins(self, trial: Trial, start: Values) -> dict[str, Tensor]:
        """A start in which all users have the values of one user, except integers."""
        split = self._split
        mine = parts_of(split.slots, start, trial.users[trial.seed % len(trial.users)])
        split.load(start)
        for user in range(split.n_users):
            split.load_private(user, mine)
        return split.state()

    def related(self, trial: Trial, begun: Values, earlier: Values) -> dict[str, Tensor]:
        """A state in which all users' values are related to those that all readers begin with.

        Integers are those of another user, since they may be used as indices.
        """
        split, draw = self._split, trial.generator("related")
        mine = {name: each.clone() for name, each in parts_of(split.slots, begun, 0).items()}
        shared = trial.torch_seeds("alike", [0])[0]
        across = Across(mine, {name: begun[name] for name in split.federated}, trial.seed)
        turned = int(torch.randint(1, split.n_users, (), generator=draw))
        split.load(earlier)
        for user, kind in enumerate(trial.relations):
            now = parts_of(split.slots, earlier, user)
            if kind == NORMAL:
                made = across.values(user, now, draw)
            else:
                make = related(kind, trial.scale, draw, shared)
                made = {name: make(each, now[name]) for name, each in mine.items()}
            values = {name: each + 0.0 for name, each in made.items()}
            other = (user + turned) % split.n_users
            split.load_private(user, {**values, **parts_of(split.counters, self._origin, other)})
        self._kinds.update(across.kinds(trial.relations))
        return split.state()
