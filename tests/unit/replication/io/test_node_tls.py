"""TLS between nodes: both show certificates of one authority, and the one that is called is who it says."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from muster.cli.security.certificate_authority import (
    IssuedCertificate,
    common_name,
    issue_server_certificate,
    sign_certificate,
)
from muster.coordinator.config import load_settings
from muster.coordinator.config.tls import BadCertificate
from muster.coordinator.replication.io.wire.node_links import LinkBroken, LinkError
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.server.security.listener_certificates import ListenerCertificates, NodeCertificates
from tests.support import certificates as made
from tests.support.replication import PATIENCE_S, HeldDesk, fetch_of, linked, serving, whole

OWN = "listener.name.replication."


def node(
    directory: Path, shown: IssuedCertificate | None = None, authority: IssuedCertificate | None = None
) -> ListenerCertificates:
    """A node's certificates for the door between nodes, by settings and files."""
    given = {
        "zookeeper.connect": "127.0.0.1",
        "inter.broker.listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": made.write(directory, "node.pem", (shown or made.server()).pem()),
        f"{OWN}ssl.client.auth": "required",
        f"{OWN}ssl.truststore.location": made.write(
            directory, "ca.pem", (authority or made.authority()).certificate_pem
        ),
    }
    found = NodeCertificates(load_settings(None, given)).of("replication")
    assert found is not None
    return found


def play(own: ListenerCertificates, story: Callable[[NodeListener], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(HeldDesk(), tls=own.tls()) as door, asyncio.timeout(PATIENCE_S):
            await story(door)

    asyncio.run(run())


def test_nodes_of_one_authority_talk(tmp_path: Path) -> None:
    own, other = node(tmp_path / "1"), node(tmp_path / "2")

    async def story(door: NodeListener) -> None:
        link = await linked(door, tls=other.calling())
        assert (await fetch_of(link, whole())).code == 0

    play(own, story)


def test_who_shows_nothing_or_what_nobody_believes_is_not_let_in(tmp_path: Path) -> None:
    own = node(tmp_path / "1")
    foreign = node(tmp_path / "2", made.server(ca=made.stranger()))
    silent = ssl.create_default_context(cadata=made.authority().certificate_pem.decode())

    async def story(door: NodeListener) -> None:
        for context in (foreign.calling(), silent):
            with pytest.raises(LinkBroken, match="its log says whether it believes this node's certificate"):
                await linked(door, tls=context)
        with pytest.raises(LinkBroken):
            await linked(door)
        assert door.connections == 0

    play(own, story)


def test_a_node_that_is_called_has_to_be_who_it_says(tmp_path: Path) -> None:
    other = node(tmp_path / "2")
    for shown in (
        made.server(ca=made.stranger()),
        issue_server_certificate(made.authority(), ["elsewhere.example"], 30),
    ):
        own = node(tmp_path / shown.certificate_pem[-80:-40].hex(), shown)

        async def story(door: NodeListener) -> None:
            with pytest.raises(LinkBroken, match=r"cannot be reached: .*certificate verify failed"):
                await linked(door, tls=other.calling())

        play(own, story)


def test_a_certificate_for_servers_only_is_refused_at_once(tmp_path: Path) -> None:
    """Found by the test above it: without clientAuth the other node ends the handshake, and nobody here knows why."""
    only = sign_certificate(
        made.authority(), common_name("localhost"), 30, [ExtendedKeyUsageOID.SERVER_AUTH], made.HOSTS
    )
    with pytest.raises(BadCertificate, match=r"inter\.broker\.listeners speaks TLS: .* is for servers only"):
        node(tmp_path, only)


def test_a_certificate_that_was_renewed_is_shown_on_the_next_connection(tmp_path: Path) -> None:
    own, other = node(tmp_path / "1"), node(tmp_path / "2", made.server(ca=made.stranger()))

    async def story(door: NodeListener) -> None:
        with pytest.raises(LinkError):
            await linked(door, tls=other.calling())
        made.write(tmp_path / "2", "node.pem", made.server().pem())
        other.reload()
        link = await linked(door, tls=other.calling())
        assert (await fetch_of(link, whole())).code == 0

    play(own, story)
