"""Masked rounds in which every client adds noise at its own host (``base.hosting``)."""

from typing_extensions import override

from secure_fedrec.protection.base.dense_uploads import DenseWords
from secure_fedrec.protection.base.hosting import Standing, rotation_seed
from secure_fedrec.protection.dp.embedded import NoisedSum
from secure_fedrec.protection.masking import MaskingServer
from secure_fedrec.protection.masking.hosted import HostedMaskedSum, HostedMasks
from secure_fedrec.uploads import Aggregate


class HostedNoisedSum(HostedMaskedSum):
    """The server's side of one attempt whose clients have noised what they sent.

    Args:
        collector: collector of the round or rounds.
        hub: the server's half.
        at: the attempt.
        layout: meaning of the words.
    """

    _collector: NoisedSum

    @override
    def aggregate(self) -> Aggregate:
        """Estimates of sums and counts.

        Raises:
            EncodingError: an estimate leaves the ring.
        """
        clients, at = len(self.heard()), self._at
        found = super().aggregate()
        return self._collector.estimated(found, rotation_seed(at), clients=clients, round_=at.round)


class HostedNoise(HostedMasks):
    """Halves of masked rounds in which every client adds noise.

    Args:
        collector: collector of the round or rounds.
    """

    _collector: NoisedSum

    @override
    def summed_by(self, at: Standing, server: MaskingServer) -> HostedNoisedSum:
        hub = super().summed_by(at, server).hub
        return HostedNoisedSum(self._collector, hub, at, self._layout)

    def _protected(self, part: DenseWords, at: Standing) -> DenseWords:
        return self._collector.noised(part, rotation_seed(at))
