"""State times message: what does not belong is refused by name and changes nothing."""

import copy
from itertools import product
from typing import Any

import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import ClientState, Kind, ServerState
from secure_fedrec.protection.masking.envelope import Envelope, seal

FROM_SERVER = [
    Kind.SETUP,
    Kind.KEYS,
    Kind.BOXES,
    Kind.SURVIVORS,
    Kind.QUORUM,
    Kind.RESULT,
]
FROM_CLIENTS = [Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM, Kind.REVEAL]


@pytest.fixture(scope="module")
def recorded(scene: Any) -> tuple[Any, dict[Kind, bytes], dict[Any, Any], dict[Any, Any]]:
    """One round: a message of each kind, and both halves as they were in every state."""
    s = scene()
    messages: dict[Kind, bytes] = {}
    clients: dict[Any, Any] = {ClientState.SETUP: copy.deepcopy(s.clients[7])}
    servers: dict[Any, Any] = {ServerState.CREATED: copy.deepcopy(s.server)}
    s.outgoing = s.server.start()
    while True:
        servers[s.server.state] = copy.deepcopy(s.server)
        clients[s.clients[7].state] = copy.deepcopy(s.clients[7])
        messages[Kind(s.outgoing[0].data[1])] = s.message_for(7)
        s._answer({})
        clients[s.clients[7].state] = copy.deepcopy(s.clients[7])
        if not s.replies:
            break
        messages[Kind(s.replies[7][1])] = s.replies[7]
        s._deliver()
        s.outgoing = s.server.close_step()
    aborted = copy.deepcopy(clients[ClientState.BOXES])
    aborted.abort("told to")
    clients[ClientState.ABORTED] = aborted
    server = copy.deepcopy(servers[ServerState.UPLOAD])
    server.abort("told to")
    servers[ServerState.ABORTED] = server
    return s, messages, clients, servers


def test_the_recording_covers_every_state_and_every_kind(recorded: Any) -> None:
    _, messages, clients, servers = recorded
    assert set(messages) == set(Kind)
    assert set(clients) == set(ClientState)
    assert set(servers) == set(ServerState)


@pytest.mark.claim("masking-refuses-by-name")
@pytest.mark.parametrize(("state", "kind"), list(product(ClientState, Kind)))
def test_a_client_refuses_every_message_that_it_does_not_await(
    recorded: Any, state: ClientState, kind: Kind
) -> None:
    _, messages, clients, _ = recorded
    client = copy.deepcopy(clients[state])
    if state.value is kind:
        client.receive(messages[kind])
        assert client.state is not state
        return
    resent = kind is Kind.QUORUM and state in (ClientState.RESULT, ClientState.DONE)
    if resent:
        assert client.receive(messages[kind]) == [messages[Kind.REVEAL]]
    else:
        with pytest.raises(ProtocolError, match=f"{kind.name}: "):
            client.receive(messages[kind])
    assert client.state is state


@pytest.mark.claim("masking-refuses-by-name")
@pytest.mark.parametrize(("state", "kind"), list(product(ServerState, Kind)))
def test_the_server_refuses_every_message_that_it_does_not_await(
    recorded: Any, state: ServerState, kind: Kind
) -> None:
    _, messages, _, servers = recorded
    server = copy.deepcopy(servers[state])
    awaiting = server.awaiting
    if state.value is kind:
        server.receive(messages[kind])
        assert server.awaiting == awaiting - {7}
        with pytest.raises(ProtocolError, match="not awaited"):
            server.receive(messages[kind])  # a second one
        return
    with pytest.raises(ProtocolError, match=f"{kind.name}: "):
        server.receive(messages[kind])
    assert server.state is state
    assert server.awaiting == awaiting


@pytest.mark.parametrize("kind", FROM_SERVER)
def test_a_client_refuses_what_the_server_did_not_sign_and_stays(recorded: Any, kind: Kind) -> None:
    s, messages, clients, _ = recorded
    client = copy.deepcopy(clients[ClientState(kind)])
    envelope = Envelope.decode(messages[kind])
    forged = seal(
        s.federation.identities[3].key, envelope.context, kind, envelope.sender, envelope.head,
        bytes(envelope.payload),
    )  # fmt: skip
    before = client.state
    for wrong, text in ((forged, "bad signature of the server"),):
        with pytest.raises(ProtocolError, match=text):
            client.receive(wrong)
    as_client = seal(s.federation.identities[3].key, envelope.context, kind, 3, envelope.head)
    with pytest.raises(ProtocolError, match="not a message of the server"):
        client.receive(as_client)
    assert client.state is before
    client.receive(messages[kind])  # it has lost nothing


@pytest.mark.parametrize("kind", FROM_CLIENTS)
def test_the_server_refuses_what_its_client_did_not_authenticate(recorded: Any, kind: Kind) -> None:
    _, messages, _, servers = recorded
    server = copy.deepcopy(servers[ServerState(kind)])
    message = bytearray(messages[kind])
    envelope = Envelope.decode(messages[kind])
    proof = len(message) - len(envelope.payload) - 1
    message[proof] ^= 1
    with pytest.raises(ProtocolError, match=r"bad (signature|MAC) of client 7"):
        server.receive(bytes(message))
    other = Envelope.decode(messages[kind])
    stranger = other.context.prefix(kind, 8, other.head)
    with pytest.raises(ProtocolError, match="client 8 is not awaited"):
        server.receive(stranger + other.proof + bytes(other.payload))
    swapped = other.context.prefix(kind, 3, other.head)
    with pytest.raises(ProtocolError, match=r"bad (signature|MAC) of client 3"):
        server.receive(swapped + other.proof + bytes(other.payload))
    server.receive(messages[kind])


def test_an_altered_vector_fails_its_mac(recorded: Any) -> None:
    _, messages, _, servers = recorded
    server = copy.deepcopy(servers[ServerState.UPLOAD])
    before = server._round._sum.total().copy()
    message = bytearray(messages[Kind.UPLOAD])
    message[-1] ^= 1
    with pytest.raises(ProtocolError, match="bad MAC"):
        server.receive(bytes(message))
    assert (server._round._sum.total() == before).all()


def test_nothing_follows_the_end(recorded: Any) -> None:
    _, _, clients, servers = recorded
    for state in (ServerState.CREATED, ServerState.DONE, ServerState.ABORTED):
        with pytest.raises(ProtocolError, match="nothing is awaited"):
            copy.deepcopy(servers[state]).close_step()
    for state, server in servers.items():
        if state is not ServerState.CREATED:
            with pytest.raises(ProtocolError, match="has started"):
                copy.deepcopy(server).start()
        if state is not ServerState.DONE:
            for reading in ("result", "packed_result", "survivors", "transcript_root"):
                with pytest.raises(ProtocolError, match="no result"):
                    getattr(server, reading)
    for state, client in clients.items():
        if state is not ClientState.DONE:
            for reading in ("survivors", "transcript_root"):
                with pytest.raises(ProtocolError, match="no result"):
                    getattr(client, reading)


def test_a_vector_is_taken_before_the_upload_and_not_after(recorded: Any) -> None:
    s, messages, clients, _ = recorded
    vector = s.layout.encode(s.values[7])
    early = (ClientState.SETUP, ClientState.KEYS, ClientState.BOXES)
    for state, original in clients.items():
        client = copy.deepcopy(original)
        if state in early:
            client.load(vector)
        else:
            with pytest.raises(ProtocolError, match="takes no vector"):
                client.load(vector)
    empty = copy.deepcopy(clients[ClientState.BOXES])
    empty._vector = None
    with pytest.raises(ProtocolError, match="no vector was loaded"):
        empty.receive(messages[Kind.BOXES])
    assert empty.state is ClientState.BOXES  # the host may still load it
    empty.load(vector)
    assert empty.receive(messages[Kind.BOXES])


def test_secrets_are_released_after_the_reveal_and_on_abort(recorded: Any) -> None:
    _, _, clients, _ = recorded
    for state in (ClientState.RESULT, ClientState.DONE, ClientState.ABORTED):
        current = clients[state]._round
        assert current._secrets.__dict__ == {}
        assert not current._neighbours
        assert clients[state]._vector is None
    assert clients[ClientState.QUORUM]._round._secrets.__dict__
