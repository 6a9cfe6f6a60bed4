"""The host of a helper that does not run on a client's host, such as the holder of a key.

It takes the server's messages one at a time, as a client's site does, and returns the answers of
its one party. Its half exists in memory only; its journal is on disk, and it has no other state.
"""

from collections.abc import Sequence

from secure_fedrec.engines.distributed.host_messages import Agreement, Request
from secure_fedrec.engines.distributed.site_session import SiteSession
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base.hosting import Desk, helpers_at
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.session import Identity, Parcel, Party
from secure_fedrec.protection.session.journal import FileJournal, Journal


class HelperSite:
    """The host of one helper.

    Args:
        agreement: with all other hosts.
        plan: the computation.
        identity: the helper's key.
        journal: record of what it has committed to.
        secret: its private key of the layer; b"" where it has none.

    Raises:
        ConfigError: the layers do not have such a party on a host of its own, or the roster lists
            another key.
    """

    def __init__(
        self,
        *,
        agreement: Agreement,
        plan: TrainingPlan,
        identity: Identity,
        journal: Journal,
        secret: bytes = b"",
    ) -> None:
        self._agreement = agreement
        self._plan = plan
        self._hosting = hosting_of(plan.stack)
        self.identity = identity
        node = identity.node
        if helpers_at(self._hosting, node) != [node]:
            raise ConfigError("site.identities", str(node), "does not have a host of its own here")
        agreement.roster.require_listed(identity)
        self._desk = Desk(journal=journal, secret=secret)
        self._party: Party | None = None
        self._serial = 0
        self._session = SiteSession(agreement, identity, self._begun, self._handle)

    def answer(self, data: bytes) -> bytes:
        """Handle one message of the server.

        Raises:
            ProtocolError, WireError: it is refused; nothing is to be sent.
            CheckpointError, OSError: the journal cannot be written.
        """
        return self._session.answer(data)

    def close(self) -> None:
        """Release the journal."""
        if isinstance(self._desk.journal, FileJournal):
            self._desk.journal.close()

    def _begun(self) -> tuple[int, int]:
        self._party, self._serial = None, 0
        return 0, 0

    def _handle(self, request: Request) -> Sequence[Parcel]:
        if request.serial < self._serial:
            raise ProtocolError(f"attempt {request.serial} is not later than {self._serial}")
        if request.serial > self._serial:
            self._party, self._serial = None, request.serial
        if self._party is None and request.state:
            _, at = self._plan.read(self._agreement, request)
            self._party = self._hosting.helper(at, self.identity, self._desk)
        if not request.parcels:
            return []
        if self._party is None:
            raise ProtocolError(f"this client does not take part in attempt {request.serial}")
        strangers = [each.receiver for each in request.parcels if each.receiver != self._party.node]
        if strangers:
            raise ProtocolError(f"{strangers[0]} is not at this site")
        return self._party.step([parcel.data for parcel in request.parcels if parcel.data])
