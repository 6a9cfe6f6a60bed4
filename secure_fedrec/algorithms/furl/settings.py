"""Settings of FURL, in a module that does not import PyTorch."""

from dataclasses import field
from typing import Annotated

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.settings import Count, OneOf, Rate, Rounds, Settings, Unit

PRIVATE_RULES = ("keep", "weighted")


class FURLRounds(Settings, section="algorithm"):
    """Hyper-parameters of rounds.

    Args:
        rounds: T, rounds of training.
        local: settings of local training.
        decay: factor on the learning rates after every round.
        row_width: values per row of the table that uploads are summed in.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: Rounds
    local: LocalTrainingConfig = field(default_factory=LocalTrainingConfig)
    decay: Rate = 1.0
    row_width: Annotated[Count, Unit("values")] = 64


class FURLConfig(FURLRounds):
    """Hyper-parameters.

    Args:
        private_rule: "keep" is z_i = 1 (eq. 7); "weighted" is z_i = c_i / sum c (eq. 6).

    Raises:
        ConfigError: a field is out of range.
    """

    private_rule: Annotated[str, OneOf(PRIVATE_RULES)] = "keep"
