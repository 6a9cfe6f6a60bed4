"""From a configuration to a federation: data, algorithm, protection stack, streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audits.config import AuditConfig
from audits.privacy import require_budget, with_noise_found
from secure_fedrec.algorithms import PMF
from secure_fedrec.data import RatingTable, Split, k_fold, latest_ml_1m, leave_one_out, load, locate
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Collector, Denoisers, Sizes, Stack, build_stack
from secure_fedrec.protection.hidden_sums import EncryptedSum, NoisedSum
from secure_fedrec.protection.linkage_hardened import LinkageHardened
from secure_fedrec.protection.shared_upload import SharedUpload
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary

__all__ = ["Federation", "build_federation", "load_table", "require_parties", "split_table"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Federation:
    """Everything a run needs.

    Args:
        config: the configuration.
        split: training and test ratings of one fold.
        stack: the protection stack.
        streams: random streams.
    """

    config: AuditConfig
    split: Split
    stack: Stack
    streams: Streams

    def algorithm(self) -> PMF:
        """A fresh algorithm."""
        return PMF(self.config.algorithm)

    @property
    def denoiser_clients(self) -> tuple[int, ...]:
        """Client number of each denoiser; empty without denoisers."""
        collector = self.stack.collector
        if isinstance(collector, Denoisers):
            return tuple(collector.binding.denoisers.tolist())
        if isinstance(collector, SharedUpload | LinkageHardened):
            return tuple(collector.denoisers.tolist())
        return ()


def load_table(config: AuditConfig, data_dir: Path | None) -> RatingTable:
    """The data set of a configuration.

    Raises:
        DataError: it is missing, damaged, or holds a rating outside its scale.
    """
    return load(config.data.name, data_dir, synthetic=config.data.synthetic(config.seed))


def split_table(
    config: AuditConfig, table: RatingTable, data_dir: Path | None, *, fold: int
) -> Split:
    """Training and test ratings of one fold."""
    data = config.data
    if data.split == "k-fold":
        return k_fold(table, folds=data.folds, fold=fold, seed=config.seed)
    latest = None
    if data.name == "ml-1m" and table.timestamps is None:
        latest = latest_ml_1m(locate(data.name, data_dir))
    return leave_one_out(table, latest=latest, seed=config.seed)


def build_federation(config: AuditConfig, split: Split) -> Federation:
    """Put the layers of a configuration together.

    Raises:
        ConfigError: a setting does not fit the data (denoisers, cohort, ring).
    """
    train = split.train
    streams = Streams.from_seed(config.seed)
    algorithm = PMF(config.algorithm)
    per_round = config.cohort.clients_per_round
    if per_round is not None and per_round > train.n_clients:
        raise ConfigError(
            "cohort.clients_per_round", per_round, f"there are only {train.n_clients} clients"
        )
    sizes = Sizes(
        n_clients=train.n_clients,
        n_items=train.n_items,
        width=algorithm.width,
        cohort=train.n_clients if per_round is None else per_round,
    )
    counts = [
        config.protection[layer].count
        for layer in ("denoisers", "linkage-hardened", "shared-upload")
        if layer in config.protection
    ]
    require_parties(
        config.adversaries,
        n_clients=train.n_clients,
        denoisers=sum(counts),
    )
    for sender in config.recording.payload_senders or ():
        if sender >= train.n_clients:
            raise ConfigError(
                "recording.payload_senders", sender, f"clients are 0 to {train.n_clients - 1}"
            )
    stack = build_stack(
        with_noise_found(config.protection, rounds=config.algorithm.rounds, sizes=sizes),
        sizes=sizes,
        codec=config.ring,
        streams=streams,
    )
    require_claimed(config, stack.collector)
    require_budget(config, stack.collector)
    return Federation(config=config, split=split, stack=stack, streams=streams)


def require_claimed(config: AuditConfig, collector: Collector) -> None:
    """Refuse adversaries that hold a key, or know noise, which the run would not show them.

    Raises:
        ConfigError: there is one.
    """
    for adversary in config.adversaries:
        clients = adversary.members("client") or frozenset()
        clients_hold_the_key = isinstance(collector, EncryptedSum) and collector.model_hidden_from
        if clients_hold_the_key and adversary.has("server") and clients:
            raise ConfigError(
                "adversaries.corrupt",
                sorted(adversary.corrupt),
                "every client holds the key: server and client together read all uploads, which "
                "protection.holder = 'clients' does not claim to withstand",
                ("server", "client:U"),
            )
        if isinstance(collector, NoisedSum) and len(clients) > collector.skellam.corrupt:
            raise ConfigError(
                "protection.corrupt",
                collector.skellam.corrupt,
                f"adversary {adversary.name!r} knows the noise of {len(clients)} clients",
            )


def require_parties(adversaries: Sequence[Adversary], *, n_clients: int, denoisers: int) -> None:
    """Refuse an adversary that corrupts a numbered party the federation does not have.

    Raises:
        ConfigError: it does.
    """
    counts = {"client": n_clients, "denoiser": denoisers}
    for adversary in adversaries:
        for role, count in counts.items():
            absent = [number for number in adversary.members(role) or () if number >= count]
            if absent:
                raise ConfigError(
                    "adversaries.corrupt",
                    f"{role}:{min(absent)}",
                    f"there are {count} {role}s, numbered from 0",
                )
