"""Measures of quality: of predicted ratings and scores, and of what a model says of users.

``figures`` says what is measured; ``baselines`` is what trivial rules reach; ``ratings`` is rating
error as FedRec++ reports it; ``scores``, ``characteristics`` and ``similarity`` are what HPFL
reports. Recommendation of items is judged by ``protocols`` (what is held out), ``ranks`` (where a
model puts it), ``oracles`` and ``leaks`` (what is found without a model), ``f1`` and ``overlap``;
``intervals`` belong to all.
"""

from secure_fedrec.evaluation.baselines import (
    Pairs,
    Rule,
    best_gain,
    score_rules,
)
from secure_fedrec.evaluation.characteristics import (
    degree_of_agreement,
    mean_scores,
    ndcg_of_characteristics,
)
from secure_fedrec.evaluation.figures import FIGURES, LOWER_IS_BETTER, UtilityFigure
from secure_fedrec.evaluation.ratings import RatingError, rating_error
from secure_fedrec.evaluation.scores import (
    ACCURACY_RULES,
    AccuracyRule,
    ScoreQuality,
    area_under_curve,
    level_hits,
    score_quality,
)
from secure_fedrec.evaluation.similarity import total_dissimilarity

__all__ = [
    "ACCURACY_RULES",
    "FIGURES",
    "LOWER_IS_BETTER",
    "AccuracyRule",
    "Pairs",
    "RatingError",
    "Rule",
    "ScoreQuality",
    "UtilityFigure",
    "area_under_curve",
    "best_gain",
    "degree_of_agreement",
    "level_hits",
    "mean_scores",
    "ndcg_of_characteristics",
    "rating_error",
    "score_quality",
    "score_rules",
    "total_dissimilarity",
]
