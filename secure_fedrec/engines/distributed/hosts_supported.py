"""Which algorithms and stacks are supported by rounds of several hosts."""

from secure_fedrec.algorithms.base import Addressed
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.engines.local_engine import require_fits
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.bags.hosted import bags_of
from secure_fedrec.protection.base.hosting import StateHidden
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.routing import LEAST_SENDERS


def require_hosts_supported(plan: TrainingPlan) -> None:
    """Refuse a stack or algorithm that rounds of several hosts do not support.

    Raises:
        ConfigError: the algorithm does not go through the stack, a layer's parties cannot be
            elsewhere, or mixes would have a batch of one client.
    """
    hosting, bags = hosting_of(plan.stack), bags_of(plan.stack.bags)
    require_fits(plan.algorithm, plan.stack, plan.n_rows)
    described = plan.stack.describe()
    active = any(described[name].get("adversary") == "active" for name in described["layers"])
    if active and isinstance(plan.algorithm, Addressed):
        name = type(plan.algorithm).__name__
        problem = f"{name} sends tables to single clients, but a round has one statement for all"
        raise ConfigError("protection.adversary", "active", problem, ("curious",))
    least = plan.cohort.clients_per_round or plan.stack.n_clients
    if bags is not None and bags.mixes is not None and least < LEAST_SENDERS:
        problem = f"mixes hide {LEAST_SENDERS} clients a round or more"
        raise ConfigError("cohort.clients_per_round", least, problem)
    hidden = "server" in plan.stack.collector.model_hidden_from
    if hidden and not isinstance(hosting, StateHidden):
        problem = "clients keep the public state from the server, which hands it out here"
        raise ConfigError("protection", " + ".join(described["layers"]), problem)
