"""One local step of Fed3CR around the step of the method that scores the fused rows; compiled.

    enhance: prototypes -> W_n -> C = G W_n        settle: pulls on G, P_n and phi, all at once

In between, a method gets rows of C and P_n (``fuse``) and moves them; their change gives its
gradient (``displace``). Scores that are products with a vector u need neither: ``enhance`` gives
them for all items, and the gradient at the rows of both tables is that at the score times u.
"""

import math
from typing import NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables.fed3cr_consensus import (
    GW,
    PULL_GW,
    PULL_P,
    PULL_W,
    TINY,
    UNIT_P,
    W_TURNED,
    Asked,
    G,
    P,
    U,
    W,
    Work,
    complementarity,
    consistency,
    look,
    prototype,
    pull,
    turn,
)
from secure_fedrec.algorithms.item_tables.fed3cr_generator import generate, teach
from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot


class Part(NamedTuple):
    """One client's part of the models.

    Args:
        table: float32[m, d], G.
        own: float32[m, d], P_n.
        positives: int64[p], rows of the rated items.
        phi: float32[F]; empty without adaptive consensus enhancement.
    """

    table: SingleArray
    own: SingleArray
    positives: IntArray
    phi: SingleArray


class Form(NamedTuple):
    """The settings that are the same for all clients.

    Args:
        sizes: int64[L + 1], values between phi's layers.
        scale: float32, factor on W_n.
        alpha: float32, weight of the consistency; 0 leaves it out.
        beta: float32, weight of the complementarity; 0 leaves it out.
    """

    sizes: IntArray
    scale: np.float32
    alpha: np.float32
    beta: np.float32


class Rates(NamedTuple):
    """Step sizes of one step, float32.

    Args:
        tables: of G and P_n.
        decay: their pull to 0.
        generator: generator of phi.
    """

    tables: np.float32
    decay: np.float32
    generator: np.float32


@compiled_loop
def enhance(part: Part, form: Form, vector: SingleArray, work: Work) -> SingleArray:
    """Everything before the score.

    Args:
        part: the client's.
        form: what is the same for all.
        vector: float32[d], u, where scores are products with it, and ``work.scores`` gets them;
            empty where ``fuse`` and ``displace`` serve another score.
        work: scratch; no error pulls yet.

    Returns:
        C: ``work.common``, or G itself without phi.
    """
    lines, sizes, width = work.lines, form.sizes, part.table.shape[1]
    prototype(part.table, part.positives, lines[G])
    prototype(part.own, part.positives, lines[P])
    asked = _asked(part, form)
    if asked.transfer:
        for factor in range(width):
            work.units[0, factor] = lines[G, factor]
            work.units[0, width + factor] = lines[P, factor]
        generate(part.phi, sizes, work.units)
        lines[GW] = 0
        for one in range(width):
            for other in range(width):
                entry = form.scale * work.units[len(sizes) - 1, one * width + other]
                work.squares[W, one, other] = entry
                lines[GW, other] += lines[G, one] * entry
        turn(work.squares[W], work.squares[W_TURNED])
    else:
        lines[GW] = lines[G]
    lines[U] = 0
    lines[U, : len(vector)] = vector
    work.scores[1] = 0
    work.slots[:] = -1
    return look(part.table, part.own, asked, work)


@compiled_loop
def _asked(part: Part, form: Form) -> Asked:
    return Asked(len(part.phi) > 0, form.alpha > 0, form.beta > 0)


@compiled_loop
def fuse(
    common: SingleArray, own: SingleArray, rows: IntArray, whole: bool, split: bool, work: Work
) -> int:
    """Copy the rows that a score reads: of C + P_n or, if ``split``, of both.

    Args:
        common: float32[m, d], C.
        own: float32[m, d], P_n.
        rows: int64[N], item of every example.
        whole: whether it reads all items; else those of the examples.
        split: whether it tells the two tables apart.
        work: gets ``items``, ``slots``, ``places`` and ``seen``.

    Returns:
        How many rows there are.
    """
    slots, width = work.slots, common.shape[1]
    if whole:
        slots[:] = 0
    for row in rows:
        slots[row] = 0
    count = 0
    for item in range(len(slots)):
        if slots[item] < 0:
            continue
        slots[item] = count
        work.items[count] = item
        for factor in range(width):
            if split:
                work.seen[0, count, factor] = common[item, factor]
                work.seen[1, count, factor] = own[item, factor]
            else:
                work.seen[0, count, factor] = common[item, factor] + own[item, factor]
        count += 1
    for example in range(len(rows)):
        work.places[example] = slots[rows[example]]
    return count


@compiled_loop
def displace(
    common: SingleArray, own: SingleArray, count: int, split: bool, rate: np.float32, work: Work
) -> None:
    """Turn the change that a score's step made to ``seen`` into gradients at rows of C and P_n."""
    for slot in range(count):
        item = work.items[slot]
        for factor in range(common.shape[1]):
            one, other = common[item, factor], own[item, factor]
            if split:
                work.seen[0, slot, factor] = (one - work.seen[0, slot, factor]) / rate
                work.seen[1, slot, factor] = (other - work.seen[1, slot, factor]) / rate
            else:
                both = ((one + other) - work.seen[0, slot, factor]) / rate
                work.seen[0, slot, factor] = both
                work.seen[1, slot, factor] = both


@compiled_loop
def settle(part: Part, form: Form, rates: Rates, work: Work) -> float:
    """Everything after the score: move both tables and phi.

    Returns:
        alpha L_con + beta L_com, before the step.
    """
    lines, width = work.lines, part.table.shape[1]
    asked = _asked(part, form)
    loss = 0.0
    if asked.consistent:
        loss += consistency(form.alpha, work.cosines)
    else:
        work.cosines[:4] = 0
    if asked.complementary:
        loss += complementarity(form.beta, work.squares, lines)
    lines[UNIT_P] = lines[P]
    own_length, length = _unit_length(lines[UNIT_P]), _unit_length(lines[GW])
    pull(part.table, part.own, asked, rates.tables, rates.decay, work)
    _of_direction(lines[UNIT_P], own_length, lines[PULL_P])
    _of_direction(lines[GW], length, lines[PULL_GW])
    if asked.transfer:
        _teach(part.phi, form, rates.generator, work)
    if asked.transfer or asked.consistent:
        share = rates.tables / np.float32(len(part.positives))
        for item in part.positives:
            for factor in range(width):
                part.table[item, factor] -= share * lines[PULL_GW, factor]
                part.own[item, factor] -= share * lines[PULL_P, factor]
    return loss


@compiled_loop
def _teach(phi: SingleArray, form: Form, rate: np.float32, work: Work) -> None:
    """Move phi; ``lines[PULL_P]`` and ``lines[PULL_GW]`` become the gradients at p and g."""
    lines, squares = work.lines, work.squares
    width, last = squares.shape[1], len(form.sizes) - 1
    for one in range(width):
        for other in range(width):
            entry = squares[PULL_W, one, other] + lines[G, one] * lines[PULL_GW, other]
            work.pulls[last, one * width + other] = form.scale * entry
    back = np.empty(width, dtype=np.float32)
    for factor in range(width):
        back[factor] = dot(squares[W], factor, lines, PULL_GW, 0)
    teach(phi, form.sizes, work.units, work.pulls, rate)
    for factor in range(width):
        lines[PULL_GW, factor] = back[factor] + work.pulls[0, factor]
        lines[PULL_P, factor] += work.pulls[0, width + factor]


@compiled_loop
def _unit_length(line: SingleArray) -> np.float32:
    """Normalise a vector to length 1; returns its old length."""
    square = np.float32(0)
    for value in line:
        square += value * value
    length = np.float32(math.sqrt(square + TINY))
    for factor in range(len(line)):
        line[factor] /= length
    return length


@compiled_loop
def _of_direction(direction: SingleArray, length: np.float32, gradient: SingleArray) -> None:
    """Turn a sum of slopes times rows into the gradient at the centre of cosines, in place."""
    along = np.float32(0)
    for factor in range(len(direction)):
        along += direction[factor] * gradient[factor]
    for factor in range(len(direction)):
        gradient[factor] = (gradient[factor] - along * direction[factor]) / length
