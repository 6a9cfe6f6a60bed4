"""FURL on the engine: every protection of the sum gives the bits of none, and any round resumes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.engines import (
    CohortConfig,
    LocalEngine,
    Problem,
    read_checkpoint,
    sizes_of,
    write_checkpoint,
)
from secure_fedrec.engines.local_engine import BATCH_BYTES
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Drop, Fault, Messages, Meter, Step, Wire

N_CLIENTS, COHORT = 5, 4
Furls = Callable[..., FURL]
Vaults = Callable[..., Vault]

LAYERS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"masking": MaskingLayerConfig()},
    "masked for real": {"masking": MaskingLayerConfig(execution="real")},
    "paillier": {"paillier": EncryptionLayerConfig()},
    "paillier for real": {"paillier": EncryptionLayerConfig(execution="real")},
}


def engine_of(
    furl: FURL,
    vault: Vault,
    layers: str = "plain",
    *,
    ring: FixedPoint | None = None,
    faults: tuple[Fault, ...] = (),
    batch_bytes: int = BATCH_BYTES,
) -> LocalEngine:
    streams, codec = Streams.from_seed(12), FixedPoint() if ring is None else ring
    sizes = sizes_of(furl, Problem(vault=vault), cohort=COHORT)
    return LocalEngine(
        algorithm=furl,
        stack=build_stack(LAYERS[layers], sizes=sizes, codec=codec, streams=streams),
        vault=vault,
        n_rows=furl.rows,
        streams=streams,
        wire=Wire(meter=Meter(N_CLIENTS), faults=faults),
        cohort=CohortConfig(clients_per_round=COHORT),
        batch_bytes=batch_bytes,
    )


def require_same_state(one: LocalEngine, other: LocalEngine) -> None:
    np.testing.assert_array_equal(one.public.table, other.public.table)
    everybody = np.arange(N_CLIENTS)
    for name in one.vault.names():
        np.testing.assert_array_equal(
            one.vault.read(name, everybody), other.vault.read(name, everybody), err_msg=name
        )


@pytest.mark.parametrize("layers", [name for name in LAYERS if name != "plain"])
def test_protected_runs_have_the_bits_of_the_plain_one(
    furl_of: Furls, examples_of: Vaults, layers: str
) -> None:
    runs = [engine_of(furl_of(), examples_of(), name) for name in ("plain", layers)]
    start = runs[0].public.table.copy()
    for _ in range(3):
        for run in runs:
            run.run_round()
        require_same_state(*runs)
    assert not np.array_equal(runs[0].public.table, start)


@pytest.mark.parametrize("settings", [{}, {"ring": FixedPoint()}, {"keep_state": True}])
@pytest.mark.parametrize("done", [0, 2])
def test_a_resumed_run_goes_on_to_the_same_bits(
    furl_of: Furls, examples_of: Vaults, tmp_path: Any, settings: dict[str, Any], done: int
) -> None:
    if "keep_state" in settings:
        settings = {**settings, "optimizer": "adam", "learning_rate": 0.01}
    whole = engine_of(furl_of(**settings), examples_of())
    for _ in range(done):
        whole.run_round()
    write_checkpoint(tmp_path / "checkpoint.npz", whole.state(), run_id="x")
    for _ in range(3):
        whole.run_round()
    resumed = engine_of(furl_of(**settings), examples_of())
    resumed.restore(read_checkpoint(tmp_path / "checkpoint.npz", run_id="x"))
    for _ in range(3):
        resumed.run_round()
    require_same_state(whole, resumed)
    for name, values in whole.public.extras.items():
        np.testing.assert_array_equal(values, resumed.public.extras[name])


def test_batches_of_the_engine_change_no_bit(furl_of: Furls, examples_of: Vaults) -> None:
    runs = [engine_of(furl_of(), examples_of(), batch_bytes=size) for size in (1, BATCH_BYTES)]
    for run in runs:
        for _ in range(2):
            run.run_round()
    require_same_state(*runs)


def test_a_broken_round_leaves_no_client_half_trained(furl_of: Furls, examples_of: Vaults) -> None:
    def last_of_round_2(messages: Messages) -> BoolArray:
        lost = (messages.round == 2) & (messages.senders.ids == messages.senders.ids.max())
        return np.asarray(lost)

    lossy = Drop(step=Step.UPLOAD, chooser=last_of_round_2)
    broken = engine_of(furl_of(), examples_of(), faults=(lossy,), batch_bytes=1)
    sound = engine_of(furl_of(), examples_of())
    for run in (broken, sound):
        run.run_round()
    with pytest.raises(ProtocolError, match="no upload"):
        broken.run_round()
    require_same_state(broken, sound)


def test_a_change_that_does_not_fit_the_ring_names_the_settings(
    furl_of: Furls, examples_of: Vaults
) -> None:
    engine = engine_of(furl_of(), examples_of(), ring=FixedPoint(clip=0.01))
    before = engine.public.table.copy()
    with pytest.raises(EncodingError, match=r"exceeds ring\.clip = 0\.01"):
        engine.run_round()
    np.testing.assert_array_equal(engine.public.table, before)


def test_diverged_training_is_refused(furl_of: Furls, examples_of: Vaults) -> None:
    furl = furl_of()

    def infinite(model: nn.Module, batch: Batch) -> Tensor:
        del batch
        return torch.stack([weight.sum() for weight in model.parameters()]).sum() * torch.inf

    furl._loss = infinite
    with pytest.raises(EncodingError, match="training diverged"):
        engine_of(furl, examples_of()).run_round()


def test_a_client_without_an_example_stops_the_engine_from_being_built(
    furl_of: Furls, examples_of: Vaults
) -> None:
    with pytest.raises(ConfigError, match="no training example"):
        engine_of(furl_of(), examples_of((3, 1, 0, 0, 2)))
