"""Contracts as tests: requirements of an algorithm, a layer or a half of a protocol.

Inherit a contract, say what to test, and pytest finds its tests::

    class TestMine(AlgorithmContract):
        def algorithm(self):
            return Mine(rank=2)

        def problem(self):
            return rating_problem(self.algorithm(), ratings)

``LayerContract`` takes a layer, ``PartyContract`` the halves of a protocol in the same way. The
package's own parts are tested by the same classes. Those of attacks are in ``attacks.testing``;
theorems for any federation, in ``secure_fedrec.properties``.
"""

from secure_fedrec.testing.algorithms import AlgorithmContract
from secure_fedrec.testing.layers import LayerContract
from secure_fedrec.testing.parties import NextRound, PartyContract

__all__ = ["AlgorithmContract", "LayerContract", "NextRound", "PartyContract"]
