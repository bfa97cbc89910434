"""What the pipeline's client takes from a peer that it does not know yet."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from leadline.security.sasl_client_authenticator import MAX_LOGIN_ANSWER_BYTES
from leadline.spark.client.connection import (
    MAX_FRAME_BYTES,
    BlockingConnection,
    BrokerAddress,
    ClientSecurity,
    Unreachable,
)
from leadline.wire.frames import SIZE, response_frame
from leadline.wire.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse
from tests.support.brokers import joined

VERSIONS = joined(
    response_frame(
        ApiVersionsResponse(
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1) for key in (3, 17, 36)]
        ),
        3,
        1,
    )
)
ACCESS = ClientSecurity.of({"request.timeout.ms": "20000"})
LOGIN = ClientSecurity.of(
    {
        "request.timeout.ms": "20000",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "x",
    }
)


@contextmanager
def peer(*answers: bytes) -> Iterator[BrokerAddress]:
    """It reads a request before each answer, and leaves after the last one."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as reader:
                for answer in answers:
                    reader.read(SIZE.unpack(reader.read(SIZE.size))[0])
                    connection.sendall(answer)
                reader.read()

        thread = threading.Thread(target=serve)
        thread.start()
        yield BrokerAddress("127.0.0.1", server.getsockname()[1])
        thread.join()


@pytest.mark.parametrize(
    ("access", "answers"), [(ACCESS, ()), (LOGIN, ()), (LOGIN, (VERSIONS,))], ids=["no login", "versions", "login"]
)
def test_a_peer_that_is_not_known_yet_cannot_announce_much(access: ClientSecurity, answers: tuple[bytes, ...]) -> None:
    size = MAX_LOGIN_ANSWER_BYTES + 1
    with peer(*answers, SIZE.pack(size)) as address, pytest.raises(Unreachable, match=f"an answer of {size} bytes"):
        BlockingConnection(address, access)


def test_a_peer_that_is_known_may_answer_more_but_not_anything() -> None:
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=id, host="h" * 30_000) for id in range(20)]
    metadata = joined(response_frame(MetadataResponse(brokers=brokers), 1, 2))
    assert len(metadata) > MAX_LOGIN_ANSWER_BYTES
    with (
        peer(VERSIONS, metadata, SIZE.pack(MAX_FRAME_BYTES + 1)) as address,
        closing(BlockingConnection(address, ACCESS)) as connection,
    ):
        assert len(connection.ask(MetadataRequest(topics=None), MetadataResponse).brokers) == 20
        with pytest.raises(Unreachable, match=f"an answer of {MAX_FRAME_BYTES + 1} bytes"):
            connection.ask(MetadataRequest(topics=None), MetadataResponse)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\0\0\0\1\0\0\xff\xff\xff\xff\xff"])
def test_a_peer_that_speaks_another_protocol_is_named(body: bytes) -> None:
    with peer(SIZE.pack(len(body)) + body) as address, pytest.raises(Unreachable, match="cannot be decoded"):
        BlockingConnection(address, ACCESS)
