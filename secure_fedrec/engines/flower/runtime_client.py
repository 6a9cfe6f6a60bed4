"""A client of Flower's runtime, by which our processes fetch tasks from Flower's."""

from collections.abc import Iterator
from contextlib import contextmanager

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient


@contextmanager
def runtime_client(
    address: str,
    component: str,
    *interceptors: ProtobufClientInterceptor,
    ca: bytes | None = None,
    tries: int | None = None,
) -> Iterator[RuntimeHttpClient]:
    """Connect, and close in the end.

    Args:
        address: host and port.
        component: Flower's component that this process replaces.
        interceptors: further ones.
        ca: certificate of the CA, PEM; without one nothing is encrypted, as within one host.
        tries: how often a call is tried; None as often as Flower does.
    """
    patience = make_simple_http_retry_invoker()
    if tries is not None:
        patience.max_tries = tries
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=ca is None,
        root_certificates=ca,
        interceptors=[RuntimeVersionHttpInterceptor(component_name=component), *interceptors],
        retry_invoker=patience,
    )
    try:
        yield client
    finally:
        client.close()


def token_of_next(client: RuntimeHttpClient, kind: str) -> str | None:
    """Token of the next task of a kind (``TaskType``); None where there is none.

    Raises:
        httpx.HTTPError: the server cannot be reached.
    """
    found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    return str(found.token) if found.HasField("task") and found.token else None
