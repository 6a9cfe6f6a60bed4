"""What is learned: 1797 handwritten digits of 8 x 8 grey values, by a network of two layers."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    """64 grey values to 10 scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scores of each digit: [n, 64] to [n, 10]."""
        return self.layers(pixels)


def initial_model() -> Net:
    """Where training begins."""
    torch.manual_seed(1)
    return Net()


def load_data(part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One of several parts of different sizes: pixels [n, 64] and digits [n]."""
    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    ends = [len(labels) * k * (k + 1) // (parts * (parts + 1)) for k in range(parts + 1)]
    own = slice(ends[part], ends[part + 1])
    return pixels[own], labels[own]


def train(model: Net, data: tuple[torch.Tensor, torch.Tensor], learning_rate: float) -> float:
    """One pass over the data; the mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    pixels, labels = data
    total = 0.0
    for batch in torch.arange(len(labels)).split(32):
        optimizer.zero_grad()
        loss = cross_entropy(model(pixels[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(labels)


@torch.no_grad()
def accuracy(model: Net, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Fraction of digits that are recognised."""
    pixels, labels = data
    return (model(pixels).argmax(dim=1) == labels).float().mean().item()
