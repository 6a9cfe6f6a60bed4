"""Paillier sums as a record."""

from dataclasses import replace

from secure_fedrec.protection.base.dense_uploads import HIDDEN
from secure_fedrec.protection.base.hidden_sum import NO_CLOAK, require_reachable
from secure_fedrec.protection.base.record import Claim, Layer, Stand
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.paillier.embedded import EncryptedSum
from secure_fedrec.protection.paillier.hosted import HostedEncryption, HostedTables


def _carried_out(config: EncryptionLayerConfig) -> str:
    kept = "; the server kept the public table encrypted, and two clients in turn took its steps"
    return kept if config.holder == "clients" else ""


_ENCRYPTED = Claim(
    system="FedMF (Chai et al. 2021) with all rows encrypted",
    hides="every upload, from the server; the sums as well, where the clients hold the key",
    assumes="an honest-but-curious server that does not collude with a holder of the key",
    lossless=True,
    found="as masking where an authority opens the sums",
)


def _hosted(collector: EncryptedSum) -> HostedEncryption | HostedTables:
    """Settings by the holder of the key."""
    return HostedTables(collector) if collector.held_by_clients else HostedEncryption(collector)


PAILLIER = Layer(
    name="paillier",
    also_called=("homomorphic", "homomorphic encryption", "he", "phe", "fedmf encryption"),
    role="collector",
    settings=EncryptionLayerConfig,
    build=lambda own, place: EncryptedSum(own, **place.table),
    hosted=_hosted,
    fits=lambda place: require_reachable(place.layers["paillier"], place.sizes.cohort),
    traits=HIDDEN,
    excludes=NO_CLOAK,
    stands=(Stand(corrupt=("server",), hides="owners"),),
    costs="every client encrypts its whole table with a public key, which takes it far longer "
    "than masks",
    claim=_ENCRYPTED,
    elsewhere=replace(
        _ENCRYPTED,
        system="{name} with encrypted {things} (Chai et al. 2021)",
        hides="{uploads}, from the server; the sums as well, where the {clients} hold the key",
        found="one upload tells nothing; where an authority opens the sums, {few}{beside}",
    ),
    simulated="uploads were random words in the place of ciphertexts; run with execution = "
    "real for the cryptography itself",
    real=_carried_out,
)
