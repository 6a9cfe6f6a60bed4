"""Packed Paillier: sums of ring words under encryption, the same bits as a plain sum.

Reading order: ``scheme`` (keys, encryption, many ring words per ciphertext); then the interactive
rounds: ``key_holders`` (who holds the key, against whom), ``messages`` (signed, under one
agreement), ``client``, ``server`` and ``helper`` (the parties), ``embedded``, ``hosted``,
``layer``.

Everything here works without the extra ``paillier``, on Python's integers; ``gmpy2`` makes it about
eight times faster. ``phe_bridge``, which is not imported here, talks to python-paillier.
"""

from secure_fedrec.protection.paillier.client.table import TableClient, TableUpdate
from secure_fedrec.protection.paillier.client.uploading import UploadingClient
from secure_fedrec.protection.paillier.helper import Authority
from secure_fedrec.protection.paillier.key_holders import KEY_HOLDINGS, KeyClaim, KeyHolding
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.tables import TableReader, updaters
from secure_fedrec.protection.paillier.scheme.division import AverageStep, rounded_quotients
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import (
    DEFAULT_BITS,
    PrivateKey,
    PublicKey,
    generate_key,
    require_key_bits,
)
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.scheme.sums import PaillierSum
from secure_fedrec.protection.paillier.scheme.vectors import (
    EncryptedVector,
    RunningSum,
    decrypt_vector,
    encrypt_vector,
)
from secure_fedrec.protection.paillier.server.table import TableServer
from secure_fedrec.protection.paillier.server.uploading import UploadingServer
from secure_fedrec.protection.session import Identity, Role, Roster
from secure_fedrec.protection.session import Node as Party

__all__ = [
    "DEFAULT_BITS",
    "KEY_HOLDINGS",
    "Authority",
    "AverageStep",
    "Decryptor",
    "EncryptedVector",
    "Encryptor",
    "Identity",
    "KeyClaim",
    "KeyHolding",
    "PaillierSum",
    "Party",
    "Plan",
    "PrivateKey",
    "PublicKey",
    "Role",
    "Roster",
    "RunningSum",
    "SlotLayout",
    "TableClient",
    "TableReader",
    "TableServer",
    "TableUpdate",
    "UploadingClient",
    "UploadingServer",
    "decrypt_vector",
    "encrypt_vector",
    "generate_key",
    "require_key_bits",
    "rounded_quotients",
    "updaters",
]
