"""One local step of Fed3CR around the step of whatever scores the fused rows; compiled.

    before: prototypes -> W_n -> C = G W_n           after: pulls on G, P_n and phi, all at once

In between a score has read rows of C and P_n and left what it pulls on them in ``work.touched``.
"""

import numpy as np

from secure_fedrec.algorithms.item_tables.fed3cr_consensus import (
    complementarity,
    consistency,
    look,
    of_direction,
    prototype,
    pull,
    unit_length,
)
from secure_fedrec.algorithms.item_tables.fed3cr_generator import generate, teach
from secure_fedrec.core.compiled import released_loop


@released_loop
def enhance(table, own, positives, phi, sizes, scale, alpha, beta, units, work):
    """Everything up to the score.

    Args:
        table: float32[m, d], G.
        own: float32[m, d], P_n.
        positives: int64[p], rows of the rated items.
        phi: float32[F]; empty without adaptive consensus enhancement.
        sizes: int64[L + 1], of its layers.
        scale: float32, on W_n.
        alpha: float32, of the consistency; 0 leaves it out.
        beta: float32, of the complementarity; 0 leaves it out.
        units: float32[L + 1, widest].
        work: scratch.

    Returns:
        float32[m, d], C: ``work.common``, or the table itself.
    """
    lines, width = work.lines, table.shape[1]
    prototype(table, positives, lines[0])
    prototype(own, positives, lines[1])
    lines[2] = lines[0]
    if len(phi):
        for factor in range(width):
            units[0, factor] = lines[0, factor]
            units[0, width + factor] = lines[1, factor]
        generate(phi, sizes, units)
        lines[2] = 0
        for one in range(width):
            for other in range(width):
                entry = scale * units[len(sizes) - 1, one * width + other]
                work.squares[0, one, other] = entry
                lines[2, other] += lines[0, one] * entry
    return look(table, own, len(phi) > 0, alpha > 0, beta > 0, work)


@released_loop
def settle(table, own, positives, phi, sizes, scale, alpha, beta, rates, units, pulls, work):
    """Everything after the score.

    Args:
        table, own, positives, phi, sizes, scale, alpha, beta, units, work: of ``enhance``; the
            first two and phi are moved.
        rates: float32[3]: step size of the tables, their weight decay, step size of phi.
        pulls: float32[L + 1, widest], scratch.

    Returns:
        alpha L_con + beta L_com, before the step.
    """
    lines, width = work.lines, table.shape[1]
    transfer, consistent, complementary = len(phi) > 0, alpha > 0, beta > 0
    loss = consistency(alpha, work.cosines) if consistent else 0.0
    if complementary:
        loss += complementarity(beta, work.squares, lines)
    lines[7] = lines[1]
    own_length, length = unit_length(lines[7]), unit_length(lines[2])
    pull(table, own, transfer, consistent, complementary, rates[0], rates[1], work)
    of_direction(lines[7], own_length, lines[3])
    of_direction(lines[2], length, lines[4])
    if transfer:
        _teach(phi, sizes, scale, rates[2], units, pulls, work)
    share = rates[0] / np.float32(len(positives))
    if transfer or consistent:
        for item in positives:
            for factor in range(width):
                table[item, factor] -= share * lines[4, factor]
                own[item, factor] -= share * lines[3, factor]
    return loss


@released_loop
def _teach(phi, sizes, scale, rate, units, pulls, work):
    """Move phi; ``lines[3]`` and ``lines[4]`` become what pulls on p and g."""
    lines, squares = work.lines, work.squares
    width, last = squares.shape[1], len(sizes) - 1
    back = np.zeros(width, dtype=np.float32)
    for one in range(width):
        for other in range(width):
            back[one] += squares[0, one, other] * lines[4, other]
            entry = squares[2, one, other] + lines[0, one] * lines[4, other]
            pulls[last, one * width + other] = scale * entry
    teach(phi, sizes, units, pulls, rate)
    for factor in range(width):
        lines[4, factor] = back[factor] + pulls[0, factor]
        lines[3, factor] += pulls[0, width + factor]
