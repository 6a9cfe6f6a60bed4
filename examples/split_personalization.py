"""Can the user embeddings of a PyTorch model stay on their users' devices?

FURL keeps private parameters at home. That costs no quality if neither training nor aggregation
needs another user's private parameters: split personalization. Here a recommender passes. With the
norm of the whole user table in its loss it does not, and the report names who disturbs whom.
"""

import torch
from torch import Tensor, nn

from secure_fedrec.properties import assert_split_equals_unsplit, check_split_personalization
from secure_fedrec.properties.split import integers, normals, random_batches

USERS, ITEMS, DIM = 4, 30, 6


class Recommender(nn.Module):
    """Rates items for one user; holds the embeddings of all, as a server would."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.mlp = nn.Sequential(nn.Linear(2 * DIM, 16), nn.Tanh(), nn.Dropout(0.2))
        self.out = nn.Linear(16, 1)

    def forward(self, user: int, item: Tensor) -> Tensor:
        """Predicted ratings: float[B]."""
        personal = self.users.weight[user].expand(len(item), DIM)
        hidden = self.mlp(torch.cat([personal, self.items(item)], dim=1))
        return self.out(hidden).squeeze(1)


def loss(model: nn.Module, user: int, batch: dict[str, Tensor]) -> Tensor:
    """What the device of one user minimises."""
    return nn.functional.mse_loss(model(user, batch["item"]), batch["rating"])


def regularised(model: nn.Module, user: int, batch: dict[str, Tensor]) -> Tensor:
    """The same, with the norm of the user table: now every user needs all users."""
    return loss(model, user, batch) + 0.1 * model.users.weight.norm()


torch.manual_seed(7)
model = Recommender()
private = ("users.weight",)
columns = {"item": integers(ITEMS), "rating": normals()}
batches = random_batches(8, **columns)

report = check_split_personalization(model, loss, private=private, batches=batches)
print(report)
report.require()

refuted = check_split_personalization(model, regularised, private=private, batches=batches)
print(refuted)
if {violation.constraint for violation in refuted.violations} != {1}:
    raise SystemExit("the norm of the user table breaks constraint (1)")

# The theorem itself: rounds with private embeddings at home end in the same bits as rounds that
# ship the whole model to the server.
generator = torch.Generator().manual_seed(7)
data = [
    {name: column(5 + user, generator).numpy() for name, column in columns.items()}
    for user in range(USERS)
]
cohorts = [(0, 2), (1, 2, 3), (0, 3)]
assert_split_equals_unsplit(model, loss, private=private, data=data, cohorts=cohorts)
print("private parameters at home: every round equal to the bit")
