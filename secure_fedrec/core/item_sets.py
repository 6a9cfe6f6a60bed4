"""Loops over clients' sets of items: first distinct draws, draws without the rated, unions.

As in ``compiled``, each walks its rows once; a client's result is a function of its own rows.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop

_DE_BRUIJN, _TOP_SIX = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_BIT_OF = np.argsort([((int(_DE_BRUIJN) << bit) % 2**64) >> 58 for bit in range(64)])
"""A word with one bit set, times this de Bruijn sequence, has the number of the bit in its top six
bits."""


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
    """Read run r of ``ranks`` until the bounds of client ``owners[r]`` are full.

    A client's results so far are at ``bounds[b]`` of ``chosen``. A rank counts as taken if it has
    the stamp of the run; stamps count up from ``stamp``, so that they need not be cleared.
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
def list_unrated(
    chosen: IndexArray,
    bounds: IntArray,
    sizes: IntArray,
    inverted: BoolArray,
    rated_indptr: IntArray,
    rated: IndexArray,
    items: IndexArray,
) -> None:
    """The items at some ranks among those that a client has not rated, ascending, client by client.

    Of ``sizes[b]`` ranks client b has chosen ``chosen[bounds[b]:bounds[b + 1]]``; where
    ``inverted``, all others. They are marked as bits, which are read in order: the cost is the
    number of ranks plus 1/64 of the catalogue.
    """
    nothing, one = np.uint64(0), np.uint64(1)
    words = np.zeros((max(sizes) if len(sizes) else 0) // 64 + 1, dtype=np.uint64)
    place = 0
    for client in range(len(inverted)):
        for number in range(bounds[client], bounds[client + 1]):
            words[chosen[number] >> 6] |= one << np.uint64(chosen[number] & 63)
        flipped = ~nothing if inverted[client] else nothing
        next_rated, end, passed = rated_indptr[client], rated_indptr[client + 1], 0
        for word in range(sizes[client] // 64 + 1):
            left = words[word] ^ flipped
            words[word] = nothing
            if word == sizes[client] // 64:
                left &= (one << np.uint64(sizes[client] % 64)) - one
            while left != nothing:
                lowest = left & (~left + one)
                left ^= lowest
                rank = 64 * word + _BIT_OF[(lowest * _DE_BRUIJN) >> _TOP_SIX]
                while next_rated < end and rated[next_rated] - passed <= rank:
                    next_rated += 1
                    passed += 1
                items[place] = rank + passed
                place += 1


@compiled_loop
def merge_sets(
    left_indptr: IntArray,
    left: IndexArray,
    right_indptr: IntArray,
    right: IndexArray,
    merged: IndexArray,
    from_right: BoolArray,
) -> None:
    """Merge two disjoint ascending sets per segment, and record the origin of each number."""
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
