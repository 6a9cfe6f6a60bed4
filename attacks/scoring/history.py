"""What rated sets would have told, had an adversary stopped earlier."""

from collections.abc import Mapping

import numpy as np

from attacks.scoring.chance import nan_mean
from attacks.scoring.gains import Figures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.joint import CatalogueGame
from attacks.scoring.rows import Rows
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.tables import count_per_client, highest_each


def history_figures(history: Mapping[int, Rows], labels: ItemSets) -> dict[str, Figures]:
    """AUC and precision of the always-seen set had the adversary stopped earlier."""
    found: dict[str, Figures] = {}
    for rounds, scores_then in history.items():
        aucs, inside, sizes, hits, whole = ([] for _ in range(5))
        game = CatalogueGame(scores_then.telling(), labels)
        for span in game.spans:
            part = game.part(span)
            scores, indptr = part.table.scores, part.pairs.indptr
            seen = scores > 0
            support = part.table.where(seen)
            always = scores == np.repeat(highest_each(scores, indptr), np.diff(indptr))
            aucs.append(per_client_auc(part.table))
            inside.append(per_client_auc(support))
            sizes.append(np.count_nonzero(always))
            hits.append(np.count_nonzero(always & part.pairs.labels))
            whole.append(count_per_client(always != part.pairs.labels, indptr) == 0)
        found[str(rounds)] = {
            "auc": nan_mean(np.concatenate(aucs)),
            "support_auc": nan_mean(np.concatenate(inside)),
            "always_seen_precision": sum(hits) / sum(sizes) if sum(sizes) else None,
            "exact_set_share": float(np.mean(np.concatenate(whole))),
        }
    return found
