"""Settings of a client's local training of a torch model, without importing PyTorch."""

from collections.abc import Mapping
from typing import Annotated, Final

from secure_fedrec.settings import Count, NonNegative, OneOf, Positive, Settings, Share, Unit

MOMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "sgd": (),
    "momentum": ("momentum_buffer",),
    "adam": ("exp_avg", "exp_avg_sq"),
}
"""Number of moments that each optimiser keeps of every parameter between two steps."""

OPTIMIZERS: Final = tuple(MOMENTS)
"""Known optimisers."""


class LocalTrainingConfig(Settings, section="local"):
    """Settings of local training.

    Args:
        optimizer: "sgd", "momentum" (SGD with heavy-ball momentum) or "adam".
        learning_rate: step size of the first round.
        private_learning_rate: step size of private parameters; without one, the others'.
        epochs: passes over the client's examples in a round.
        batch_size: size of a step's batch; without one, a step takes all examples at once.
        momentum: factor of the optimiser "momentum" on the last step.
        betas: decay factors of both moments of "adam".
        epsilon: denominator term of "adam".
        proximal: mu of FedProx. Federated parameters w are pulled to their values w_0 at the start
            of the round by mu/2 |w - w_0|^2; private ones do not have a common value.
        gradient_clip: largest L2 norm of the gradient of the federated parameters; longer ones are
            scaled down. Without it all are left alone.
        keep_state: whether the optimiser's moments stay on the device from round to round; else
            every round starts with fresh ones.

    Raises:
        ConfigError: a field is out of range.
    """

    optimizer: Annotated[str, OneOf(OPTIMIZERS)] = "sgd"
    learning_rate: Positive = 0.1
    private_learning_rate: Positive | None = None
    epochs: Annotated[Count, Unit("epochs")] = 1
    batch_size: Annotated[Count, Unit("examples")] | None = None
    momentum: Share = 0.9
    betas: tuple[Share, Share] = (0.9, 0.999)
    epsilon: Positive = 1e-8
    proximal: NonNegative = 0.0
    gradient_clip: Positive | None = None
    keep_state: bool = False

    def _agree(self) -> None:
        if self.keep_state and not MOMENTS[self.optimizer]:
            raise self.refusal("keep_state", f"{self.optimizer} does not have a state to keep")
