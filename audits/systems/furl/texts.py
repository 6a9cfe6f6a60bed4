"""FURL on texts: the document model, learnt from what users wrote."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from audits.system import DataFacts, Fresh, Nouns, Secrets, Undivided, Wanted, digest_of
from audits.systems.furl.checks import USERS, SplitCase
from audits.systems.furl.settings import DocumentSettings, NewsgroupsData, StickersData
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data.newsgroups import load_newsgroups
from secure_fedrec.data.stickers import generate_stickers
from secure_fedrec.data.user_texts import CODES, UserTexts
from secure_fedrec.engines import Evaluate
from secure_fedrec.evaluation import Rule
from secure_fedrec.models.document import PRIVATE, DocumentModel, document_loss
from secure_fedrec.studies.furl.quality import DocumentQuality, quality_of_users
from secure_fedrec.studies.furl.study import furl_problem
from secure_fedrec.vault import Vault

_CHARACTERS = "character_embedding.weight"
_NOUNS: Mapping[str, Nouns] = {
    "20newsgroups": Nouns(clients="clients", items="newsgroups", examples="posts"),
    "stickers": Nouns(clients="clients", items="answers", examples="messages"),
}


def learner(settings: DocumentSettings, classes: int) -> FURL:
    """FURL of a model of so many answers."""
    return FURL(
        lambda: DocumentModel(settings.model(classes, users=1)),
        document_loss,
        settings.furl,
        private=PRIVATE if settings.personal else None,
    )


class TextTask:
    """FURL on one split of texts.

    Args:
        settings: settings of the algorithm.
        texts: texts of all users.
    """

    def __init__(self, settings: DocumentSettings, texts: UserTexts) -> None:
        self.settings = settings
        self.texts = texts
        self._quality = DocumentQuality(
            settings.model(len(texts.classes), users=texts.n_users), texts
        )

    @cached_property
    def facts(self) -> DataFacts:
        """The texts in figures, and what each user's most frequent class would score."""
        texts = self.texts
        test = texts.rows("test")
        return DataFacts(
            name=texts.name,
            fingerprint=self.identity(),
            clients=texts.n_users,
            items=len(texts.classes),
            examples=len(texts),
            train=len(texts.rows("train")),
            test=len(test),
            nouns=_NOUNS[texts.name],
            baselines={
                "every client's most frequent answer": Rule(
                    figures=quality_of_users(texts, test), local=True
                )
            },
        )

    def identity(self) -> str:
        """Digest of all texts and of their parts."""
        texts = self.texts
        columns = {
            name: getattr(texts, name)
            for name in ("user_labels", "users", "text", "length", "label", "part")
        }
        return digest_of({**columns, "classes": np.array(texts.classes)})

    def fresh(self) -> Fresh:
        """FURL, the training texts in vaults, and the quality on the test texts."""
        algorithm = learner(self.settings, len(self.texts.classes))
        problem = furl_problem(algorithm, self.texts, quality=self._quality)
        # Every text is an example: there are no sampled negatives, and no table of items.
        told = {"negatives": 0, "item_table": None}
        knowledge = {**problem.knowledge, **told, **self._private_input()}
        evaluate = None if problem.evaluate is None else _on_test(problem.evaluate)
        return Fresh(algorithm, replace(problem, evaluate=evaluate, knowledge=knowledge))

    def public(self) -> dict[str, Any]:
        """How many answers there are."""
        return {"classes": len(self.texts.classes)}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """An empty mapping: a client only gets its examples."""
        return {}

    def secrets(self) -> Secrets:
        """Classes of every user's training texts, the most frequent one, and characters used."""
        texts = self.texts
        rows = texts.rows("train")
        posted: BoolArray = np.zeros((texts.n_users, len(texts.classes)), dtype=np.bool_)
        posted[texts.users[rows], texts.label[rows]] = True
        used: BoolArray = np.zeros((texts.n_users, CODES), dtype=np.bool_)
        inside = np.arange(texts.text.shape[1]) < texts.length[rows][:, None]
        writers = np.broadcast_to(texts.users[rows][:, None], inside.shape)
        used[writers[inside], texts.text[rows][inside]] = True
        columns = {"labels.majority": texts.majority_labels(), "sets.classes": posted}
        if not self.settings.reads_text:
            return {"secrets": columns}
        return {"secrets": {**columns, f"sets.{_CHARACTERS}": used}}

    def _private_input(self) -> dict[str, Any]:
        """Where the user embedding enters, after the text: public, as the model is."""
        if not self.settings.personal:
            return {}
        first = 2 * self.settings.hidden if self.settings.reads_text else 0
        return {"private_input": {"layer": "hidden.weight", "first": first}}

    def split_case(self) -> SplitCase | None:
        """The model of the first users with their texts; None where nothing is private."""
        if not self.settings.personal:
            return None
        users = min(self.texts.n_users, USERS)
        model = self.settings.model(len(self.texts.classes), users=users)
        vault = self.texts.vault()

        def loss(of_all: nn.Module, user: int, batch: Batch) -> Tensor:
            return document_loss(of_all, {**batch, "user": torch.full_like(batch["label"], user)})

        return SplitCase(
            build=lambda: DocumentModel(model),
            loss=loss,
            private=PRIVATE,
            data=[vault.examples(user) for user in range(users)],
            training=self.settings.local,
        )


def load_texts(wanted: Wanted) -> Undivided:
    """Read or make the texts of a configuration.

    Raises:
        DataError: the file is missing or damaged.
    """
    data: NewsgroupsData | StickersData = wanted.data
    if isinstance(data, StickersData):
        texts = generate_stickers(data.config(wanted.seed))
    else:
        texts = load_newsgroups(wanted.data_dir, data.config(wanted.seed))
    return Undivided(TextTask(wanted.algorithm, texts))


def _on_test(evaluate: Evaluate) -> Evaluate:
    """The figures of the test part, by their plain names."""

    def on_test(public: PublicState, vault: Vault) -> dict[str, float]:
        found, prefix = evaluate(public, vault) or {}, "test_"
        return {
            name.removeprefix(prefix): value
            for name, value in found.items()
            if name.startswith(prefix)
        }

    return on_test
