"""The user models of organisations: one form, and the sizes of each client's users and items."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from secure_fedrec.data.organisations.catalogues import Catalogues
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.vault import Vault


class UserModels:
    """One GUM per client; they hold no parameters.

    Args:
        config: form of all of them.
        organisations: the clients' names and sizes, and the attributes of their items.
    """

    def __init__(self, config: GUMConfig, organisations: Catalogues) -> None:
        self._names = organisations.names
        sizes = zip(organisations.n_users, organisations.attributes, strict=True)
        self._models = tuple(
            GUM(config, n_users=users, attributes=attributes) for users, attributes in sizes
        )

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[GUM]:
        return iter(self._models)

    def __getitem__(self, client: int) -> GUM:
        return self._models[client]

    def held(self, vault: Vault) -> list[tuple[int, GUM]]:
        """Numbers and models of the clients whose state a vault holds."""
        return [(client, self._models[client]) for client in vault.clients.tolist()]

    def require_records(self, vault: Vault, *, validation: bool) -> None:
        """Check that the vaults are of these clients, and that every client can train.

        Args:
            vault: vault of some of these clients, or all.
            validation: whether training needs validation records.

        Raises:
            ConfigError: the vault is of other clients, or a client has no training record, no
                validation record where one is needed, or one of a user or item not its own.
        """
        if vault.clients[-1] >= len(self) or not (vault.named or vault.n_clients == len(self)):
            raise ConfigError(
                "data.clients", vault.n_clients, f"vaults for {len(self)} organisations"
            )
        for client, gum in self.held(vault):
            name = self._names[client]
            training, held_out = split_records(vault.examples(client))
            parts = (("training", training, True), ("validation", held_out, validation))
            for what, part, needed in parts:
                if needed and not len(part.scores):
                    raise ConfigError(
                        "data.clients", name, f"does not have a {what} record; leave it out"
                    )
                try:
                    gum.require_known(part.users, part.items)
                except ValueError as error:
                    raise ConfigError("data.clients", name, str(error)) from error


def split_records(examples: Mapping[str, npt.NDArray[Any]]) -> tuple[Records, Records]:
    """A client's examples as (training records, validation records)."""
    held = examples["held_out"]
    training, validation = (
        Records(*(examples[name][chosen] for name in ("users", "items", "scores")))
        for chosen in (~held, held)
    )
    return training, validation
