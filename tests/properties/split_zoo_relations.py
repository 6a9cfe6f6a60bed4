"""Models and rules in which a value crosses only where others' values are related to one's own."""

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties.split.aggregation import AggregationInput, Aggregator, keep_local
from secure_fedrec.properties.split.model import Values
from tests.properties.split_zoo import Entry, Factorisation, Shape, case, own
from tests.properties.split_zoo_rules import Updates, norm, scaled


class Related(Factorisation):
    """A loss is scaled where what others have is related to what its user has."""

    def others(self, user: int) -> Tensor:
        table = self.users.weight.detach()
        return table[torch.arange(len(table)) != user]  # reads

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        """How many are: a number."""
        raise NotImplementedError

    def forward(self, user: int, batch: Batch) -> Tensor:
        number = self.related(self.others(user), own(self, user).detach())
        return super().forward(user, batch) * (1 + 0.5 * number)


class Equal(Related):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        return (others == mine).all(1).sum()


class ExactlyOneEqual(Related):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        return torch.as_tensor((others == mine).all(1).sum() == 1).sum()


class AllEqual(Related):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        return torch.as_tensor(others == mine).all().sum()


class Near(Related):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        apart = (others - mine).norm(dim=1)
        return torch.as_tensor((apart < 0.05 * mine.norm()) & (apart > 0)).sum()


class VeryNear(Related):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        apart = (others - mine).norm(dim=1)
        return torch.as_tensor((apart < 1e-3 * mine.norm()) & (apart > 0)).sum()


class Cosine(Related):
    """As contrastive losses pick their positives; wide rows, so it does not happen by chance."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(Shape(users=shape.users, dim=12))

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        alike: Tensor = torch.nn.functional.cosine_similarity(others, mine[None])  # reads
        return (alike > 0.9).sum()


class Opposite(Cosine):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        alike: Tensor = torch.nn.functional.cosine_similarity(others, mine[None])
        return (alike < -0.9).sum()


class Multiple(Cosine):
    """The same direction, another length."""

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        along = torch.nn.functional.cosine_similarity(others, mine[None]) > 0.999
        ratio = others.norm(dim=1) / mine.norm()
        return torch.as_tensor(along & ((ratio - 1).abs() > 0.01)).sum()


class Permuted(Cosine):
    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        alike = (others.sort(1).values == mine.sort().values).all(1)
        return (alike & (others != mine).any(1)).sum()


class AllAlike(Related):
    """The others are all the same, and not as oneself is."""

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        alike = (others == others[:1]).all() & (others[0] != mine).any()
        return alike.sum()


class NearWithGradient(Cosine):
    """Rows at a cosine above 0.9 are pulled."""

    def penalty(self, user: int) -> Tensor:
        table = self.users.weight
        alike = torch.nn.functional.cosine_similarity(table, table[user][None]) > 0.9  # reads
        alike[user] = False
        return (table[alike] - table[user]).square().sum()

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        return torch.zeros(())


class Remembered(Cosine):
    """What others trained with is remembered, and compared."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bank: dict[int, Tensor] = {}

    def others(self, user: int) -> Tensor:
        self.bank[user] = own(self, user).detach().clone()
        found = [value for other, value in self.bank.items() if other != user]
        return torch.stack(found) if found else torch.zeros(0, 12)


class RememberedEqual(Remembered):
    """What others first trained with is remembered."""

    def others(self, user: int) -> Tensor:
        self.bank.setdefault(user, own(self, user).detach().clone())
        found = [value for other, value in self.bank.items() if other != user]
        return torch.stack(found) if found else torch.zeros(0, 12)

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        return (others == mine).all(1).sum()  # reads


class SameCluster(Factorisation):
    """Users of one cluster, a private number, are pulled together."""

    clusters: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("clusters", torch.arange(shape.users))

    def penalty(self, user: int) -> Tensor:
        same = self.clusters == self.clusters[user]  # reads
        same[user] = False
        out: Tensor = own(self, user).sum() * same.sum()
        return out


class LikeItemsOfAll(Cosine):
    """Others whose vector is like an item's are counted."""

    def related(self, others: Tensor, mine: Tensor) -> Tensor:
        items = torch.nn.functional.normalize(self.items.weight.detach(), dim=1)
        return (torch.nn.functional.normalize(others, dim=1) @ items.T > 0.9).sum()  # reads


class QueryAndKey(Cosine):
    """Others' keys are compared with one's own query."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.key = nn.Embedding(shape.users, 12)

    def others(self, user: int) -> Tensor:
        return self.key.weight.detach()[torch.arange(len(self.key.weight)) != user]  # reads

    def penalty(self, user: int) -> Tensor:
        return self.key.weight[user].square().sum()


# --- right ones ---


class OwnCosine(Related):
    """A user's row is compared with what it was in its own first step."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first: dict[int, Tensor] = {}

    def forward(self, user: int, batch: Batch) -> Tensor:
        mine = own(self, user).detach()
        first = self.first.setdefault(user, mine.clone())
        return Factorisation.forward(self, user, batch) * (1 + (first == mine).sum())


class LikeItems(Factorisation):
    """Items that are like one's own vector are counted."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        mine = own(self, user).detach()[None]
        alike = torch.nn.functional.cosine_similarity(self.items.weight.detach(), mine) > 0.9
        return super().forward(user, batch) * (1 + alike.sum())


class OwnPlace(Factorisation):
    """The row of a user stands where its own private number says."""

    place: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("place", torch.arange(shape.users))

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        mine = self.users.weight[int(self.place[user])]
        out: Tensor = self.items(item) @ mine + self.bias[item]
        return out


PRIVATE_PLACE = ("users.weight", "place")

RELATIONS: dict[str, Entry] = {
    "rows equal to mine": (case(Equal), "refuted"),
    "exactly one row equal to mine": (case(ExactlyOneEqual), "refuted"),
    "all rows equal to mine": (case(AllEqual), "refuted"),
    "rows near mine": (case(Near), "refuted"),
    "rows within a thousandth": (case(VeryNear), "refuted"),
    "cosine above 0.9": (case(Cosine), "refuted"),
    "cosine below -0.9": (case(Opposite), "refuted"),
    "multiples of mine": (case(Multiple), "refuted"),
    "permutations of mine": (case(Permuted), "refuted"),
    "all others alike": (case(AllAlike), "refuted"),
    "pulled at a cosine above 0.9": (case(NearWithGradient), "refuted"),
    "remembered rows at a cosine above 0.9": (case(Remembered), "refuted"),
    "remembered rows equal to mine": (case(RememberedEqual), "refuted"),
    "others like an item": (case(LikeItemsOfAll), "refuted"),
    "keys like my query": (case(QueryAndKey, "users.weight", "key.weight"), "refuted"),
    "same private cluster": (case(SameCluster, "users.weight", "clusters"), "refuted"),
    "compared with oneself": (case(OwnCosine), "holds"),
    "compared with items": (case(LikeItems), "holds"),
    "place by a private number": (case(OwnPlace, *PRIVATE_PLACE), "holds"),
}

FINE = ("rows within a thousandth", "cosine below -0.9", "permutations of mine")
"""Need all nine trials."""


# --- rules ---


def rows_of(values: Values) -> Tensor:
    return torch.cat([value.reshape(-1) for value in values.values()])


def equal_private(given: AggregationInput) -> Updates:
    """Users with one value weigh as one."""
    federated, private = keep_local(given)
    rows = [tuple(rows_of(values).tolist()) for values in private.values()]  # reads
    return scaled(federated, len(set(rows)) / len(rows)), private


def alike_private(given: AggregationInput) -> Updates:
    """Whoever is like somebody else starts anew."""
    federated, private = keep_local(given)
    rows = {user: rows_of(values) for user, values in private.items()}
    found = {}
    for user, row in rows.items():
        alike = any(
            float(torch.nn.functional.cosine_similarity(row, rows[other], dim=0)) > 0.999  # reads
            for other in rows
            if other != user
        )
        found[user] = scaled(private[user], 0.0 if alike else 1.0)
    return federated, found


def near_private(given: AggregationInput) -> Updates:
    """The private values before the round are compared."""
    federated, private = keep_local(given)
    rows = [rows_of(given.private[user]) for user in sorted(given.private)]
    close = sum(
        float((one - other).norm()) < 0.05 * float(one.norm())  # reads
        for place, one in enumerate(rows)
        for other in rows[:place]
    )
    return scaled(federated, 1 / (1 + close)), private


def like_items(given: AggregationInput) -> Updates:
    """Private vectors that are like an item's move the model."""
    federated, private = keep_local(given)
    items = torch.nn.functional.normalize(given.federated["items.weight"], dim=1)
    alike = sum(
        int((items @ torch.nn.functional.normalize(v, dim=-1) > 0.99).sum())  # reads
        for values in given.private.values()
        for v in values.values()
    )
    return scaled(federated, 1 / (1 + alike)), private


def reset_far(given: AggregationInput) -> Updates:
    """Private values start anew where the model moved by more than 5."""
    federated, private = keep_local(given)
    step = {name: federated[name] - old for name, old in given.federated.items()}  # reads
    return federated, {
        user: scaled(values, 0.0 if norm(step) > 5e2 else 1.0) for user, values in private.items()
    }


def reset_still(given: AggregationInput) -> Updates:
    """Private values start anew where somebody's model did not move."""
    federated, private = keep_local(given)
    still = any(
        all(torch.equal(value, given.federated[name]) for name, value in local.items())  # reads
        for local in given.local_federated.values()
    )
    return federated, {u: scaled(v, 0.0 if still else 1.0) for u, v in private.items()}


def reset_equal(given: AggregationInput) -> Updates:
    """Private values start anew where two users send the same."""
    federated, private = keep_local(given)
    rows = [tuple(rows_of(values).tolist()) for values in given.local_federated.values()]  # reads
    alike = len(set(rows)) < len(rows)
    return federated, {u: scaled(v, 0.0 if alike else 1.0) for u, v in private.items()}


def reset_alike(given: AggregationInput) -> Updates:
    """Private values of whoever sends what is like somebody else's start anew."""
    federated, private = keep_local(given)
    local = given.local_federated
    steps = {u: rows_of(local[u]) - rows_of(given.federated) for u in local}  # reads
    found = {}
    for user in private:
        alike = any(
            float(torch.nn.functional.cosine_similarity(steps[user], steps[other], dim=0)) > 0.99
            for other in steps
            if other != user
        )
        found[user] = scaled(private[user], 0.0 if alike else 1.0)
    return federated, found


def deduplicated(given: AggregationInput) -> Updates:
    """Equal uploads count once: federated values may be compared with each other."""
    _, private = keep_local(given)
    found = {}
    for name in given.federated:
        seen: list[Tensor] = []
        for values in given.local_federated.values():
            if not any(torch.equal(values[name], each) for each in seen):
                seen.append(values[name])
        found[name] = torch.stack(seen).mean(0)
    return found, private


RELATED_RULES: dict[str, tuple[Aggregator, str]] = {
    "equal private values weigh once": (equal_private, "refuted"),
    "like private values start anew": (alike_private, "refuted"),
    "private values near each other": (near_private, "refuted"),
    "reset where the model moved far": (reset_far, "refuted"),
    "reset where a model did not move": (reset_still, "refuted"),
    "reset where two models are equal": (reset_equal, "refuted"),
    "reset where two models moved alike": (reset_alike, "refuted"),
    "equal uploads count once": (deduplicated, "holds"),
}
