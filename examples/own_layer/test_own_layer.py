"""The layer keeps the contract of layers."""

from own_layer import LAYER

from secure_fedrec.testing import LayerContract


class TestRoundedValues(LayerContract):
    """What a stack, an audit and a reader of claims take for granted."""

    layer = LAYER
