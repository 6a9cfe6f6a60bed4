"""One direction of an LSTM over character codes, as fast on a device's few texts as on a server's.

``CharacterLSTM`` has the parameters of ``torch.nn.LSTM`` and computes what it computes on embedded
characters, up to rounding. In single precision it runs the compiled loops of ``loops``; for
other number formats and widths torch's own code runs.
"""

from typing import Any

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from secure_fedrec.models.lstm.loops import lstm_backward, lstm_forward

_BLOCK = 4  # units that the compiled loops take at a time


class CharacterLSTM(nn.LSTM):
    """An LSTM whose input is a row of an embedding table per step.

    Args:
        character_dim: E, length of a character's embedding.
        hidden: H, number of units.
    """

    def __init__(self, character_dim: int, hidden: int) -> None:
        super().__init__(character_dim, hidden)
        with torch.no_grad():  # open forget gates let gradients reach far back
            self.get_parameter("bias_ih_l0")[hidden : 2 * hidden] += 1.0

    def read(self, embedding: Tensor, codes: Tensor) -> Tensor:
        """Outputs of every step.

        Args:
            embedding: float[codes, E], one row per character.
            codes: int64[T, B].

        Returns:
            float[T, B, H].
        """
        weights = {name: self.get_parameter(f"{name}_l0") for name in _WEIGHTS}
        kinds = {each.dtype for each in (embedding, *weights.values())}
        if kinds != {torch.float32} or embedding.is_cuda or self.hidden_size % _BLOCK:
            outputs: Tensor = self(nn.functional.embedding(codes, embedding))[0]
            return outputs
        bias = weights["bias_ih"] + weights["bias_hh"]
        table = nn.functional.linear(embedding, weights["weight_ih"], bias)
        found: Tensor = _Compiled.apply(  # type: ignore[no-untyped-call]
            table, weights["weight_hh"], codes
        )
        return found


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Compiled(torch.autograd.Function):
    """(table [codes, 4H], weight_hh [4H, H], codes [T, B]) -> outputs [T, B, H]."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, weight_hh: Tensor, codes: Tensor) -> Tensor:
        (steps, batch), width = codes.shape, weight_hh.shape[1]
        codes = codes.contiguous()
        gates = np.empty((steps, batch, 4, width), dtype=np.float32)
        hidden = np.zeros((steps + 1, batch, width), dtype=np.float32)
        cell = np.zeros_like(hidden)
        bent = np.empty((steps, batch, width), dtype=np.float32)
        lstm_forward(
            table.detach().reshape(-1, 4, width).numpy(),
            codes.numpy(),
            weight_hh.detach().T.contiguous().numpy(),
            gates,
            hidden,
            cell,
            bent,
        )
        ctx.save_for_backward(weight_hh, codes)
        ctx.written = gates, hidden, cell, bent
        ctx.characters = len(table)
        return torch.from_numpy(hidden[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        weight_hh, codes = ctx.saved_tensors
        gates, hidden, cell, bent = ctx.written
        of_gates = np.empty_like(gates)
        of_table = np.zeros((ctx.characters, 4, weight_hh.shape[1]), dtype=np.float32)
        lstm_backward(
            codes.numpy(),
            weight_hh.detach().contiguous().numpy(),
            gates,
            cell,
            bent,
            of_outputs.contiguous().numpy(),
            of_gates,
            of_table,
        )
        flat = torch.from_numpy(of_gates).flatten(0, 1).flatten(1)
        of_weight = flat.T @ torch.from_numpy(hidden[:-1]).flatten(0, 1)
        return torch.from_numpy(of_table).flatten(1), of_weight, None
