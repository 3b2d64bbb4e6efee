"""`muster health` at a port that speaks TLS says so, instead of giving the name of a gRPC status."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.common.options import speaks_tls
from muster.cli.main import cli
from tests.support.certificates import authority, server, write


def answered_port(context: ssl.SSLContext | None) -> Iterator[str]:
    """A port that shakes hands, or says nothing in plain text."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    held.append(connection if context is None else context.wrap_socket(connection, server_side=True))
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for one in held:
            one.close()


@pytest.fixture(params=["1.3", "client certificate", "1.2"])
def tls_port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write(tmp_path, "server.pem", server().pem()))
    context.set_alpn_protocols(["h2"])
    if request.param == "1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if request.param == "client certificate":
        context.load_verify_locations(write(tmp_path, "ca.pem", authority().certificate_pem))
        context.verify_mode = ssl.CERT_REQUIRED
    yield from answered_port(context)


def test_a_port_that_speaks_tls_is_told_from_others(tls_port: str) -> None:
    assert speaks_tls(tls_port)


def test_a_silent_port_does_not_speak_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cli.common.options.PATIENCE_S", 0.05)
    for address in answered_port(None):
        assert not speaks_tls(address)
    assert not speaks_tls("127.0.0.1:1")
    assert not speaks_tls("no address")


def test_health_says_what_to_do(tls_port: str) -> None:
    result = CliRunner().invoke(cli, ["health", "--bootstrap", tls_port, "--timeout", "0.3"], standalone_mode=False)
    assert "speaks TLS" in str(result.exception)
    assert "security.protocol=SSL" in str(result.exception)
