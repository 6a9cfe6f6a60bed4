"""Quality of a document model on every user's held-out texts, all users in one model.

A device holds one user's vector. To evaluate a whole federation, the vectors of all users become
the rows of one embedding table, as on a central server: one pass then scores the texts of
everybody.
"""

from collections.abc import Iterator

import numpy as np
import torch

from secure_fedrec.algorithms.local_training import one_thread, seeded_torch
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.evaluation import area_under_curve
from secure_fedrec.models.document import PRIVATE, DocumentModel
from secure_fedrec.models.settings import DocumentConfig
from secure_fedrec.models.split import ParameterSplit

_BATCH = 128


class DocumentQuality:
    """Measures federated and private values of the document model.

    Args:
        config: of the model with one user vector per user of the data (none for a global model).
        data: texts of all parts.
    """

    def __init__(self, config: DocumentConfig, data: UserTexts) -> None:
        self._data = data
        with seeded_torch(0):  # all values are written before any is used
            self._model = DocumentModel(config).eval()
        self._split = ParameterSplit.of(self._model, private=PRIVATE if config.user_dim else None)

    def measure(self, federated: FloatArray, private: FloatArray) -> dict[str, float]:
        """Metrics on the validation and test parts, by names such as ``test_accuracy``.

        Args:
            federated: float64[n_federated].
            private: float64[U, p], one row per user.
        """
        self._split.write_federated(self._model, federated)
        self._split.write_private(self._model, private.reshape(-1))
        return {
            f"{part}_{name}": value
            for part in ("validation", "test")
            for name, value in self._measure(self._data.rows(part)).items()
        }

    def _measure(self, rows: IntArray) -> dict[str, float]:
        scores = self.scores(rows)
        found = quality_of_labels(self._data, rows, np.argmax(scores, axis=1))
        if len(self._data.classes) == 2:
            area = area_under_curve(scores[:, 1] - scores[:, 0], self._data.label[rows] == 1)
            if area is not None:
                found["auc"] = area
        return found

    def scores(self, rows: IntArray) -> FloatArray:
        """Scores of the classes: float64[len(rows), classes]."""
        data = self._data
        found = np.empty((len(rows), len(data.classes)))
        with torch.no_grad(), one_thread():
            for places in _batches(data.length[rows]):
                chosen = rows[places]
                found[places] = self._model(
                    torch.from_numpy(data.text[chosen]),
                    torch.from_numpy(data.length[chosen]),
                    torch.from_numpy(data.users[chosen]),
                ).numpy()
        return found


def quality_of_labels(data: UserTexts, rows: IntArray, labels: IntArray) -> dict[str, float]:
    """Accuracy of predicted labels: over all texts, and over those of users with several classes.

    Args:
        data: the texts.
        rows: int64[N], the texts judged.
        labels: int64[N], predicted.
    """
    right: BoolArray = labels == data.label[rows]
    mixed = data.mixed_users()[data.users[rows]]
    found = {"accuracy": float(right.mean())} if len(right) else {}
    return {**found, "accuracy_mixed": float(right[mixed].mean())} if mixed.any() else found


def quality_of_users(data: UserTexts, rows: IntArray) -> dict[str, float]:
    """Quality of the best guesses from the user alone, without the text.

    Labels are the users' most frequent classes in training; with two classes texts are ranked by
    the share of the second among their user's training texts, that of all where there is none.

    Args:
        data: the texts.
        rows: int64[N], the texts judged.
    """
    found = quality_of_labels(data, rows, data.majority_labels()[data.users[rows]])
    if len(data.classes) != 2:
        return found
    labels = data.label_counts()
    counts, hits = labels.sum(axis=1), labels[:, 1]
    overall = hits.sum() / max(1, counts.sum())
    shares = np.divide(hits, counts, out=np.full(data.n_users, overall), where=counts > 0)
    area = area_under_curve(shares[data.users[rows]], data.label[rows] == 1)
    return found if area is None else {**found, "auc": area}


def _batches(lengths: IntArray) -> Iterator[IntArray]:
    """Positions of texts of about equal length, so that little is padded."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]
