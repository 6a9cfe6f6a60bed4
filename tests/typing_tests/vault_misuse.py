"""Every marked line must be a type error: private state has no way into a block or a message."""

import numpy as np

from secure_fedrec.uploads import DenseBlock, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Meter, Parties, Step, Wire


def send_as_payload(vault: Vault) -> Messages:
    one = np.zeros(1, dtype=np.int64)
    return Messages(
        round=1,
        step=Step.UPLOAD,
        senders=Parties.server(1),
        receivers=Parties.server(1),
        payload=vault,  # expect: arg-type
        sizes=one,
    )


def hide_in_values(vault: Vault) -> RowBlock:
    return RowBlock(
        indptr=np.zeros(1, dtype=np.int64),
        rows=np.zeros(0, dtype=np.int32),
        values=vault,  # expect: arg-type
    )


def hide_in_rows(vault: Vault) -> RowBlock:
    return RowBlock(
        indptr=np.zeros(1, dtype=np.int64),
        rows=vault,  # expect: arg-type
        values=None,
        counts=vault,  # expect: arg-type
    )


def hide_in_a_table(vault: Vault) -> DenseBlock:
    return DenseBlock(values=vault, shape=(1,))  # expect: arg-type


def upload(vault: Vault) -> Upload:
    return Upload(clients=np.zeros(1, dtype=np.int64), blocks={"table": vault})  # expect: dict-item


def carry(vault: Vault) -> Messages:
    return Wire(meter=Meter(1)).send(vault)  # expect: arg-type
