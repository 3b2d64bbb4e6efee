"""What changes under a running node, and what keeps one from starting: authorities, and bad certificates."""

import subprocess
import time
from pathlib import Path

import grpc
import pytest

from muster.cli.security import certificate_authority
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.integration.security.test_tls_clients import Secured
from tests.support.certificates import authority, client, secure, server, stranger, write
from tests.support.node import MUSTER, running_node
from tests.support.pace import pace
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0


def gets_in(secured: Secured, who: certificate_authority.IssuedCertificate) -> dict[str, bool]:
    """By which doors, with this certificate and a connection of its own."""
    secured.own = write(secured.directory, "shown.pem", who.pem())
    own = grpc.ssl_channel_credentials(authority().certificate_pem, who.key_pem(), who.certificate_pem)
    found = {}
    with grpc.secure_channel(secured.node.address, own, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            GroupCoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
            found["grpc"] = True
        except grpc.RpcError:
            found["grpc"] = False
    try:
        found["http"] = secured.get("/api/v1/groups")[0] == 200
    except OSError:
        found["http"] = False
    return found


def test_authorities_come_and_go_without_a_restart(tmp_path: Path) -> None:
    """Who is believed no longer gets in no more, however he was known; who stands in a connection stays there."""
    settings = secure(
        tmp_path,
        listeners="SSL://127.0.0.1:0",
        http_listeners="SSL://127.0.0.1:0",
        ssl_client_auth="required",
        authorizer="acl",
        super_users="User:CN=alice",
    )
    alice, other = client("alice"), certificate_authority.issue_client_certificate(stranger(), "alice", 1)
    trusted, every = tmp_path / "ca.pem", {"grpc": True, "http": True}
    none = dict.fromkeys(every, False)

    def until(who: certificate_authority.IssuedCertificate, wanted: dict[str, bool]) -> None:
        end_s = time.monotonic() + PATIENCE_S * pace()
        while gets_in(secured, who) != wanted:
            assert time.monotonic() < end_s, wanted

    with running_node(tmp_path / "data", settings) as node:
        secured = Secured(tmp_path, node)
        secured.ca = write(tmp_path, "clients.pem", authority().certificate_pem)
        assert gets_in(secured, alice) == every
        assert gets_in(secured, other) == none
        with secured.channel() as standing:
            stub = GroupCoordinatorStub(standing)
            stub.ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
            trusted.write_bytes(authority().certificate_pem + stranger().certificate_pem)
            until(other, every)
            assert gets_in(secured, alice) == every
            trusted.write_bytes(stranger().certificate_pem)
            until(alice, none)
            assert gets_in(secured, other) == every
            stub.ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
        trusted.write_bytes(b"half of a bund")
        assert gets_in(secured, other) == every, "what is broken changes nothing"


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (server().certificate_pem + client().key_pem(), "the private key is not that of the first certificate"),
        (server(days=-1).pem(), "the certificate of CN=localhost ended "),
        (b"", "there is no certificate; expected PEM"),
    ],
    ids=["another key", "ended", "empty"],
)
def test_a_node_whose_certificate_is_no_good_does_not_start(pem: bytes, why: str, tmp_path: Path) -> None:
    path = write(tmp_path, "server.pem", pem)
    given = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": path, "http.listeners": ""}
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [MUSTER, "serve", "--data", str(tmp_path / "data"), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: listeners speaks TLS: {path}: {why}")
    assert not (tmp_path / "data").exists()
