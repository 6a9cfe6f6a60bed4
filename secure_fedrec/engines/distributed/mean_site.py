"""Hosts of an external training loop, of which the server learns only a mean.

An external loop has its own models, data and transport. ``MeanSite`` is the part of a client's
host, ``mean_coordinator`` that of the server's: both take and return bytes; the loop defines the
computation (``Task``). One round is an exchange in which sites are asked to compute and agree on
keys, and four in which they mask, confirm and reveal; a greeting comes first, since addresses do
not identify sites.

A site's process may handle one message only. Its half is saved in between, sealed, for one use
(``masking.client.sealed_state``); it does not hold the model, the data or the loop's own state.
Messages of the server: GREETING and REQUEST of ``host_messages``, then those of ``masking`` as they
are. The body of REQUEST: u32 size, the server's statement | SETUP. Refusals whose reasons may be
told are answered with REFUSED.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.files import replace_file
from secure_fedrec.engines.distributed.host_messages import (
    NO_INSTRUCTIONS,
    NONCE_BYTES,
    Agreement,
    Kind,
    Present,
    refusal,
)
from secure_fedrec.engines.distributed.public_randomness import signed_beacon
from secure_fedrec.engines.distributed.round_log import SHOWN_DIGITS, with_fields
from secure_fedrec.engines.distributed.site_state import KEY_BYTES, SealedState, SiteState
from secure_fedrec.errors import ConfigError, HaltedError, ProtocolError, RefusalError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.masking import ClientState, Expected, MaskingClient
from secure_fedrec.protection.masking import envelope as masking
from secure_fedrec.protection.masking.envelope import Envelope, encode_ids
from secure_fedrec.protection.masking.messages.key_messages import Setup
from secure_fedrec.protection.means import Arrays, ProtectedMean, SharedArrays, Update
from secure_fedrec.protection.session import Identity, Role, Roster
from secure_fedrec.protection.session.beacon import Beacon
from secure_fedrec.protection.session.operator import public_key, read_public_key
from secure_fedrec.protection.session.roster import read_private
from secure_fedrec.protection.session.statement import (
    SOFTWARE,
    Statement,
    labelled_hash,
    state_hash,
)

BEGIN: Final = "begin"
"""Label of the exchange in which sites are asked to compute."""

log = logging.getLogger("secure-fedrec")

_HASH_BYTES, _SIZE = 32, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A site's task.

    Args:
        digest: 32 bytes, hash of all that the computation depends on: the model and instructions.
        model: all arrays of the model, by name, as this host was sent them. A client reveals only
            once for the same shared arrays (``MaskedMean.select``).
        compute: performs the computation.
    """

    digest: bytes
    model: Arrays
    compute: Callable[[], Update]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that a host gets before it starts, in its own folder.

    Args:
        folder: with ``roster``, ``operator.pub`` and ``server.identity`` or ``client.identity``;
            where rounds take public randomness, its owner puts the operator's values into
            ``beacons``.
    """

    folder: Path

    def roster(self) -> Roster:
        """Everybody's keys.

        Raises:
            ConfigError: a file is missing or damaged, or another key signed it.
        """
        path = self.folder / "operator.pub"
        try:
            operator = public_key(path.read_text(encoding="ascii").strip())
            return Roster.load(self.folder / "roster", operator=operator)
        except (OSError, UnicodeError) as error:
            problem = f"cannot be read ({type(error).__name__}): the operator's public key"
            raise ConfigError("roster.operator", str(path), problem) from None
        except ProtocolError as refused:
            raise ConfigError("roster.file", str(self.folder / "roster"), str(refused)) from None

    def agreement(self, digest: bytes, roster: Roster) -> Agreement:
        """Facts that hosts agree on; ``first-operator.pub`` exists after a change of operator.

        Args:
            digest: 32 bytes, of the terms.
            roster: keys of all parties.

        Raises:
            ConfigError: that file holds no public key.
        """
        path = self.folder / "first-operator.pub"
        founder = read_public_key(path) if path.exists() else b""
        return Agreement(digest=digest, roster=roster, founder=founder)

    def identity(self, role: Role, roster: Roster) -> Identity:
        """The host's own key.

        Raises:
            ConfigError: it is missing, of another role, open to others, or not on the roster.
        """
        path = self.folder / f"{role.name.lower()}.identity"
        found = Identity.load(path)
        if found.node.role is not role or found.node not in roster:
            raise ConfigError("identity.file", str(path), f"{found.node} is not on the roster")
        if roster.key_of(found.node) != found.public:
            raise ConfigError("identity.file", str(path), "the roster lists another key")
        return found


class MeanSite:
    """A client's host.

    Args:
        terms: the agreed terms.
        keys: the client's own.
        instructions: 32 bytes, hash of further instructions for its computation, such as a run's
            configuration; must be equal at all clients.
        beacon: source of public randomness at this host, if the terms need any; by default the
            operator's files in the folder ``beacons`` beside its keys.

    Raises:
        ConfigError: keys or roster are not in order.
        CheckpointError: the journal or what was kept is damaged, missing beside the other, or of
            another federation, or another process holds the journal.
    """

    def __init__(
        self,
        terms: ProtectedMean,
        keys: Keys,
        *,
        instructions: bytes = NO_INSTRUCTIONS,
        beacon: Beacon | None = None,
    ) -> None:
        roster = keys.roster()
        self._instructions = instructions
        self.identity = keys.identity(Role.CLIENT, roster)
        self._terms = terms
        self._agreement = keys.agreement(terms.digest, roster)
        own = signed_beacon(self._agreement, keys.folder)
        self._beacon = own if beacon is None else beacon
        self._key = _own_key(keys.folder / "key")
        sealed = SealedState(keys.folder / "state", self._key)
        self._sealed, self._halted = sealed, sealed.halted
        self._half = sealed.journal.with_name("half")
        self._expected = sealed.journal.with_name("half.expected")
        kept = sealed.load()  # before the journal is locked: damage must not lock it
        self._journal = sealed.open_journal(
            owner=self.identity.number, federation=self._agreement.federation
        )
        before = SiteState() if kept is None else kept
        try:
            now = before.under(roster)
            if kept is None or now.roster_hash != kept.roster_hash:
                sealed.keep(now)  # state and journal exist together from now on
        except (ConfigError, OSError):
            self._journal.close()  # so that this process can open it again
            raise

    def __enter__(self) -> "MeanSite":
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def answer(self, data: bytes, task: Task | None = None) -> bytes:
        """Handle one message of the server.

        Args:
            data: the message.
            task: the task that came with it, if any.

        Returns:
            The answer; b"" where no answer is due. A halted client answers greetings, and all other
            messages with a notice that it is halted.

        Raises:
            ProtocolError, WireError: it is refused; nothing is to be sent. A refusal that may be
                told is the answer (``RefusalError``).
            ConfigError, EncodingError: the terms do not fit the model (``MaskedMean.select``).
            ConfigError: a beacon in the host's folder is not signed as it has to be.
            CheckpointError, OSError: the journal or the half cannot be written.
        """
        try:
            return self._handled(data, task)
        except (RefusalError, HaltedError) as why:
            log.warning("refused: %s", why)
            body = sha256(data).digest() + refusal(self.identity.node, why).data
            return self._agreement.seal(Kind.REFUSED, body, by=self.identity)

    def _handled(self, data: bytes, task: Task | None) -> bytes:
        kind = data[2] if len(data) > 2 and data[0] != masking.VERSION else None
        if kind == Kind.GREETING:
            return self._greeted(data)
        self._halted.require_active()
        if kind == Kind.REQUEST:
            return self._begun(data, task)
        return self._continued(data)

    def _greeted(self, data: bytes) -> bytes:
        server, own = self._agreement.open_greeting(data), os.urandom(NONCE_BYTES)
        present = Present(
            server=server, site=own, completed=0, settled=0, instructions=self._instructions
        )
        return self._agreement.seal(Kind.PRESENT, present.encode(), by=self.identity)

    def _begun(self, data: bytes, task: Task | None) -> bytes:
        """Enter the round, compute, and save everything for the next message."""
        agreement = self._agreement
        _, body = agreement.open(data, Kind.REQUEST)
        stated, setup = _parts(body)
        if task is None:
            raise RefusalError("nothing came with the request that is to be computed")
        self._require_affordable()
        shared, envelope = self._terms.select(task.model), Envelope.decode(setup)
        at = standing(
            agreement,
            serial=int.from_bytes(envelope.context.round_id[:8], "little"),
            clients=Setup.decode(envelope.head).cohort,
            task=task,
            shared=shared,
            instructions=self._instructions,
        )
        named = self._terms.config(at, shared).layout_hash
        statement = at.statement.known
        statement.require_same(stated)
        client = self._client(Expected(layout_hash=named, statement=statement))
        answers = client.receive(setup)  # refuses a round begun before
        with self._halted.on_own_data():
            vector = self._terms.encode(task.compute(), at, shared)
        client.load(vector)
        replace_file(self._expected, named + statement.encoded, private=True, durable=True)
        return self._kept(client, answers)

    def _continued(self, data: bytes) -> bytes:
        """Load the saved half."""
        if not self._expected.exists():
            raise ProtocolError("no round is in progress")
        found = read_private(self._expected, "site.half")
        named, statement = found[:_HASH_BYTES], Statement.decode(found[_HASH_BYTES:])
        client = self._client(Expected(layout_hash=named, statement=statement))
        if self._half.exists():
            client.resume(self._half, self._key)
        if client.state is ClientState.BOXES:
            self._require_affordable()
        try:
            answers = client.receive(data)
            if any(Envelope.decode(each).kind is masking.Kind.UPLOAD for each in answers):
                self._note_sent(statement, sum(map(len, answers)))
            return self._kept(client, answers)
        except ProtocolError:
            self._kept(client, [])  # a refused message does not end the round
            raise

    def _note_sent(self, statement: Statement, size: int) -> None:
        """Before the upload leaves: count it if needed, and log the round."""
        digest, most, price = statement.digest.hex(), self._terms.rounds, ""
        fields = {"round": statement.round, "statement": digest, "bytes": size}
        if most is not None:
            self._journal.spend()
            spent = self._journal.spent
            fields |= {"noised_uploads": spent, "noised_uploads_left": most - spent}
            price = f", {spent} of {most} noised vectors handed in"
        log.info(
            "round %d: statement %s, %d bytes sent%s",
            *(statement.round, digest[:SHOWN_DIGITS], size, price),
            extra=with_fields(event="round", **fields),
        )

    def _require_affordable(self) -> None:
        """Check that one more round is within the agreed number.

        Raises:
            RefusalError: the agreed number is reached.
        """
        most = self._terms.rounds
        if most is not None and self._journal.spent >= most:
            raise RefusalError(
                f"this client's budget is spent: {most} noised vectors were handed in, as many as "
                "protection.rounds allows"
            )

    def _client(self, expected: Expected) -> MaskingClient:
        """A half that knows the public values so far."""
        half = MaskingClient(
            identity=self.identity,
            roster=self._agreement.roster,
            policy=self._terms.policy,
            journal=self._journal,
            expected=expected,
        )
        known = {} if self._terms.beacon == "none" else self._beacon.values()
        for epoch, value in known.items():
            half.observe_beacon(epoch, value)
        return half

    def _kept(self, client: MaskingClient, answers: Sequence[bytes]) -> bytes:
        """Save the half, if its round continues, and return its answers."""
        over = (ClientState.SETUP, ClientState.RESULT, ClientState.DONE, ClientState.ABORTED)
        if client.state not in over:
            client.save(self._half, self._key)
        return b"".join(answers)


def request(stated: bytes, setup: bytes) -> bytes:
    """The body of REQUEST.

    Args:
        stated: ``Statement.encoded`` of the round.
        setup: message of the masks.
    """
    return len(stated).to_bytes(_SIZE, "little") + stated + setup


def _parts(body: bytes) -> tuple[bytes, bytes]:
    """Inverse of ``request``; truncated data do not have a statement."""
    end = _SIZE + int.from_bytes(body[:_SIZE], "little")
    return body[_SIZE:end], body[end:]


def standing(
    agreement: Agreement,
    *,
    serial: int,
    clients: IntArray,
    task: Task,
    shared: SharedArrays,
    instructions: bytes,
) -> Standing:
    """An attempt at a mean, whose round and serial are the same number.

    Its state is the shared arrays only: otherwise a server could vary an array that clients ignore,
    to get a second sum of the same update. The task's digest covers the other arrays.
    """
    return Standing(
        round=serial,
        serial=serial,
        clients=clients,
        present=clients,
        statement=Statement(
            federation=agreement.federation,
            state=state_hash(shared.of(task.model)),
            round=serial,
            cohort=labelled_hash("invited", encode_ids(clients)),
            instructions=labelled_hash("instructions", task.digest, instructions),
            settings=agreement.digest,
            code=SOFTWARE,
        ),
        series=agreement.series,
        roster=agreement.roster,
    )


def _own_key(path: Path) -> bytes:
    """The key that seals a site's state; drawn once, so that it outlives the signing key."""
    if not path.exists():
        # Linked into place, so that the key is complete and never replaces one just drawn by
        # another process.
        drawn = path.with_name(f"{path.name}.{os.getpid()}")
        replace_file(drawn, os.urandom(KEY_BYTES), private=True, durable=True)
        try:
            os.link(drawn, path)
        except FileExistsError:
            pass
        except PermissionError:  # a file system without links
            drawn.replace(path)
        finally:
            drawn.unlink(missing_ok=True)
    return read_private(path, "site.key")
