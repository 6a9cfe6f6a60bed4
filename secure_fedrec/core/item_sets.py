"""Loops over clients' sets of items: first distinct draws, draws without the rated, unions.

As in ``compiled``, each walks its rows once; a client's result is a function of its own rows.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop


@compiled_loop
def take_first_distinct(
    ranks: IntArray,
    runs: IntArray,
    owners: IntArray,
    bounds: IntArray,
    found: IntArray,
    chosen: IndexArray,
    stamps: IndexArray,
    stamp: int,
) -> None:
    """Read run r of ``ranks`` until client ``owners[r]`` has as many as its bounds have room for.

    What a client has found so far stands at ``bounds[b]`` of ``chosen``. A rank is taken if its
    stamp is the client's own, one for each run from ``stamp`` on: nothing is ever wiped.
    """
    for run in range(len(runs) - 1):
        client = owners[run]
        begin, end = bounds[client], bounds[client + 1]
        place, own = begin + found[client], stamp + run
        for before in range(begin, place):
            stamps[chosen[before]] = own
        for drawn in range(runs[run], runs[run + 1]):
            if place == end:
                break
            rank = ranks[drawn]
            if stamps[rank] != own:
                stamps[rank] = own
                chosen[place] = rank
                place += 1
        found[client] = place - begin


@compiled_loop
def race_unrated(
    uniforms: FloatArray,
    weights: FloatArray,
    rated_indptr: IntArray,
    rated: IndexArray,
    indptr: IntArray,
    items: IndexArray,
) -> None:
    """Of the items that client b has not rated, those with the least ``-log(u) / weight``.

    As many as ``indptr`` has room for, ascending (Efraimidis and Spirakis 2006: drawing one after
    the other in proportion to the weights, without replacement). ``uniforms[b, i]`` is client b's
    number for item i. Logarithms are taken one by one: vectors of them may round otherwise.
    """
    catalogue = len(weights)
    times = np.empty(catalogue)
    for client in range(len(indptr) - 1):
        wanted = indptr[client + 1] - indptr[client]
        if wanted == 0:
            continue
        for item in range(catalogue):
            times[item] = -math.log(uniforms[client, item]) / weights[item]
        for place in range(rated_indptr[client], rated_indptr[client + 1]):
            times[rated[place]] = np.inf
        winners = np.argsort(times, kind="mergesort")[:wanted]
        winners.sort()
        items[indptr[client] : indptr[client + 1]] = winners


@compiled_loop
def list_ranks(
    chosen: IndexArray,
    bounds: IntArray,
    sizes: IntArray,
    inverted: BoolArray,
    stamps: IndexArray,
    stamp: int,
    ranks: IndexArray,
) -> None:
    """The chosen members of each pool of ``sizes[b]`` ranks, ascending, pool after pool.

    Pool b has chosen ``chosen[bounds[b]:bounds[b + 1]]``; where ``inverted``, all others. Few are
    sorted, many found by a walk over the pool. ``ranks`` has one place more than there are ranks: a
    place is written before it is known whether it counts, which spares a branch that no processor
    could predict.
    """
    place = 0
    for pool in range(len(inverted)):
        begin, end = bounds[pool], bounds[pool + 1]
        if not inverted[pool] and sizes[pool] > 32 * (end - begin):
            ranks[place : place + end - begin] = np.sort(chosen[begin:end])
            place += end - begin
            continue
        own = stamp + pool
        for number in range(begin, end):
            stamps[chosen[number]] = own
        for rank in range(sizes[pool]):
            ranks[place] = rank
            place += (stamps[rank] == own) != inverted[pool]


@compiled_loop
def skip_members(
    ranks: IndexArray, indptr: IntArray, skipped_indptr: IntArray, skipped: IndexArray
) -> None:
    """Turn ranks among the numbers that are not skipped into those numbers, in place.

    Both the ranks and the skipped numbers of a segment ascend.
    """
    for segment in range(len(indptr) - 1):
        begin, end = skipped_indptr[segment], skipped_indptr[segment + 1]
        passed = 0
        for place in range(indptr[segment], indptr[segment + 1]):
            while begin + passed < end and skipped[begin + passed] - passed <= ranks[place]:
                passed += 1
            ranks[place] += passed


@compiled_loop
def merge_sets(
    left_indptr: IntArray,
    left: IndexArray,
    right_indptr: IntArray,
    right: IndexArray,
    merged: IndexArray,
    from_right: BoolArray,
) -> None:
    """Merge two disjoint ascending sets per segment, noting where each number comes from."""
    place = 0
    for segment in range(len(left_indptr) - 1):
        one, one_end = left_indptr[segment], left_indptr[segment + 1]
        other, other_end = right_indptr[segment], right_indptr[segment + 1]
        while one < one_end or other < other_end:
            take_right = one == one_end or (other < other_end and right[other] < left[one])
            merged[place] = right[other] if take_right else left[one]
            from_right[place] = take_right
            other += take_right
            one += not take_right
            place += 1


@compiled_loop
def merge_values(
    indptr: IntArray,
    items: IndexArray,
    given: BoolArray,
    given_values: FloatArray,
    own_indptr: IntArray,
    own_items: IndexArray,
    own_values: FloatArray,
    values: FloatArray,
) -> bool:
    """Values of ascending items: the next given one where ``given``, else the own value.

    Returns:
        False if an item that is not given is not among the client's own.
    """
    place = 0
    for client in range(len(indptr) - 1):
        own, end = own_indptr[client], own_indptr[client + 1]
        for row in range(indptr[client], indptr[client + 1]):
            if given[row]:
                values[row] = given_values[place]
                place += 1
                continue
            while own < end and own_items[own] < items[row]:
                own += 1
            if own == end or own_items[own] != items[row]:
                return False
            values[row] = own_values[own]
    return place == len(given_values)
