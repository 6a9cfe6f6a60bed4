"""Norms of examples' gradients: Opacus' ghost norms, without loss of digits for linear layers.

The norm of sum_t g_t a_t^T, with g_t and a_t of the backward and the forward pass at place t of a
sequence, is the root of sum_{s,t} (g_s . g_t)(a_s . a_t) (Li, Tramer, Liang and Hashimoto 2022).
If terms cancel, as for a positive and a negative item with similar features, hardly any of the 24
bits are left: in float32 the root can be too small, even 0, and the example would not be clipped.
Products of float32 numbers are exact in float64.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from torch import Tensor, nn


def _linear_norms(
    layer: nn.Linear, activations: Sequence[Tensor], backprops: Tensor
) -> dict[Tensor, Tensor]:
    """Norms by parameter, float[n]; none for rows of other shapes, which are then refused."""
    if backprops.dim() not in (2, 3):
        return {}
    shape, kind = (len(backprops), -1), backprops.dtype
    given = activations[0].double().reshape(*shape, layer.in_features)
    found = backprops.double().reshape(*shape, layer.out_features)
    norms: dict[Tensor, Tensor] = {}
    if layer.weight.requires_grad:
        products = (found @ found.mT) * (given @ given.mT)
        norms[layer.weight] = products.sum(dim=(1, 2)).clamp(min=0).sqrt().to(kind)
    if layer.bias is not None and layer.bias.requires_grad:
        norms[layer.bias] = torch.linalg.vector_norm(found.sum(dim=1), dim=1).to(kind)
    return norms


def _embedding_norms(
    layer: nn.Embedding, activations: Sequence[Tensor], backprops: Tensor
) -> dict[nn.Parameter, Tensor]:
    """Norms of a table's gradients, float[n]; a padding row has none, and Opacus counts it."""
    if layer.padding_idx is not None:
        backprops = backprops * (activations[0] != layer.padding_idx).unsqueeze(-1)
    norms = GradSampleModuleFastGradientClipping.NORM_SAMPLERS[nn.Embedding]
    return dict(norms(layer, [activations[0].contiguous()], backprops.contiguous()))


class GhostNorms(GradSampleModuleFastGradientClipping):  # type: ignore[misc]
    """Opacus' module with the norms above for linear layers and tables."""

    NORM_SAMPLERS: Mapping[type[nn.Module], Any] = MappingProxyType(
        {
            **GradSampleModuleFastGradientClipping.NORM_SAMPLERS,
            nn.Linear: _linear_norms,
            nn.Embedding: _embedding_norms,
        }
    )
