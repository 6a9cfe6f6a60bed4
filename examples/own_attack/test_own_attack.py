"""The attack keeps the contract of the suite."""

from own_attack import ATTACK

from attacks.testing import AttackContract


class TestTwoRounds(AttackContract):
    """What an audit takes for granted."""

    attack = ATTACK
