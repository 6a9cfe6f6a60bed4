"""Rows of sums with one organisation behind them are that organisation's, word for word."""

import numpy as np
import pytest

from attacks import evaluate
from attacks.families.hierarchical import LoneRows
from attacks.planted.controls import WHO, planted
from attacks.planted.organisations import plant_organisations
from attacks.scoring.clear_uploads import LoneRowsClaim
from attacks.scoring.gains import Level
from attacks.scoring.measures import severity_of
from attacks.scoring.truth import Case
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig

MASKS = {"masking": MaskingLayerConfig()}


@pytest.mark.claim("lone-rows")
def test_rows_of_one_organisation_are_read_off_masked_sums() -> None:
    run, truth = planted("lone organisations")
    finding = evaluate(LoneRows(), WHO["server"], run.transcript, truth, seed=0)
    assert finding.figures["lone_clients"] is not None
    assert finding.figures["lone_clients"] >= 20
    assert severity_of(finding.figures) != "info"


@pytest.mark.claim("lone-rows")
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_several_send_are_no_ones(seed: int) -> None:
    attributes = int(np.random.default_rng(seed).integers(2, 12))
    run, truth = plant_organisations(layers=MASKS, attributes=attributes, evenness=20.0, seed=seed)
    finding = evaluate(LoneRows(), WHO["server"], run.transcript, truth, seed=0)
    assert finding.figures["lone_clients"] == 0
    assert severity_of(finding.figures) == "info"


def test_uploads_in_the_clear_have_nothing_to_decode() -> None:
    run, truth = planted("organisations")
    finding = evaluate(LoneRows(), WHO["server"], run.transcript, truth, seed=0)
    assert finding.reason == "uploads can be read: nothing is hidden in a sum"


@pytest.mark.claim("lone-rows")
def test_rows_that_are_not_what_was_sent_count_for_nobody() -> None:
    run, truth = planted("lone organisations")
    made = LoneRows().claim(run.transcript.view(WHO["server"])).of(LoneRowsClaim)[0]
    altered = {round_: (numbers, words + 1) for round_, (numbers, words) in made.rows.items()}
    case = Case(truth=truth, corrupted=frozenset(), seed=0)
    figures = [
        next(LoneRowsClaim(rows=rows).scored(case)).at(Level(seed=0))["lone_clients"]
        for rows in (made.rows, altered)
    ]
    assert figures[0] and not figures[1]
