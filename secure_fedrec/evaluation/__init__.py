"""Measures of quality: of predicted ratings and scores, and of a model's user representations.

``figures`` lists what is measured; ``baselines`` has trivial rules; ``ratings`` is rating error as
FedRec++ reports it; ``scores``, ``characteristics`` and ``similarity`` are what HPFL reports.
Recommendation of items is judged by ``protocols`` (what is held out), ``ranks`` (where a model puts
it), ``oracles`` and ``leaks`` (what is found without a model), ``f1`` and ``overlap``;
``intervals`` belong to all.
"""

from secure_fedrec.evaluation.baselines import Pairs as Pairs
from secure_fedrec.evaluation.baselines import Rule as Rule
from secure_fedrec.evaluation.baselines import best_gain as best_gain
from secure_fedrec.evaluation.baselines import score_rules as score_rules
from secure_fedrec.evaluation.characteristics import degree_of_agreement as degree_of_agreement
from secure_fedrec.evaluation.characteristics import mean_scores as mean_scores
from secure_fedrec.evaluation.characteristics import (
    ndcg_of_characteristics as ndcg_of_characteristics,
)
from secure_fedrec.evaluation.figure import RankingFigure as RankingFigure
from secure_fedrec.evaluation.figure import RatingFigure as RatingFigure
from secure_fedrec.evaluation.figure import UtilityFigure as UtilityFigure
from secure_fedrec.evaluation.figures import FIGURES as FIGURES
from secure_fedrec.evaluation.figures import LOWER_IS_BETTER as LOWER_IS_BETTER
from secure_fedrec.evaluation.figures import figures_of as figures_of
from secure_fedrec.evaluation.ratings import rating_quality as rating_quality
from secure_fedrec.evaluation.scores import ACCURACY_RULES as ACCURACY_RULES
from secure_fedrec.evaluation.scores import AccuracyRule as AccuracyRule
from secure_fedrec.evaluation.scores import ScoreQuality as ScoreQuality
from secure_fedrec.evaluation.scores import area_under_curve as area_under_curve
from secure_fedrec.evaluation.scores import level_hits as level_hits
from secure_fedrec.evaluation.scores import score_quality as score_quality
from secure_fedrec.evaluation.similarity import total_dissimilarity as total_dissimilarity
