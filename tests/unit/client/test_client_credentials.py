"""TLS, certificates and tokens of clients, and what is said where two sides do not trust each other."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.client import credentials
from muster.client.aio import AsyncAdmin, AsyncConsumer
from muster.client.config import ClientConfig, load
from muster.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    NotTrusted,
    Unreachable,
    WrongPort,
    refusal,
)
from tests.support.secured import PASSWORD, Authority, Signed, secured

TOKEN = "mt_s3cr3t"


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def own(ca: Authority) -> Signed:
    return ca.sign("node", "localhost")


@pytest.fixture(autouse=True)
def _look_at_files_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "LOOK_AGAIN_S", 0.0)


def tls(ca: Authority, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.truststore.certificates": ca.pem, **more}


async def topics(address: str, given: dict[str, Any]) -> dict[str, int]:
    async with AsyncAdmin({"bootstrap.servers": address, "default.api.timeout.ms": 2_000, **given}) as admin:
        return await admin.list_topics()


def test_by_tls_with_a_certificate_and_a_token(ca: Authority, own: Signed, tmp_path: Path) -> None:
    me = ca.sign("me")
    (tmp_path / "ca.pem").write_text(ca.pem)
    (tmp_path / "me.pem").write_text("Bag Attributes\n" + me.chain + me.encrypted_key())
    (tmp_path / "token").write_text(TOKEN + "\n")
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.location": str(tmp_path / "me.pem"),
        "ssl.key.password": PASSWORD,
        "token.file": str(tmp_path / "token"),
    }

    async def story() -> None:
        async with secured(own, clients=ca.pem, tokens={TOKEN}) as node:
            assert await topics(node.address, given) == {"orders": 1}
            inline = tls(ca, token=TOKEN)
            inline["ssl.keystore.certificate.chain"] = me.chain.replace("\n", " ")
            inline["ssl.keystore.key"] = me.key.replace("\n", "\\n")
            assert await topics(node.address, inline) == {"orders": 1}

    asyncio.run(story())


def test_a_token_goes_plainly_to_this_machine_and_to_no_other() -> None:
    async def story() -> None:
        async with secured(None, tokens={TOKEN}) as node:
            assert await topics(node.address, {"token": f"Bearer {TOKEN}"}) == {"orders": 1}
        with pytest.raises(ConfigError, match=r"token would go to 192\.0\.2\.1:9 for everybody .* allow\.insecure"):
            await topics("192.0.2.1:9", {"token": TOKEN})
        allowed = {"token": TOKEN, "allow.insecure.token": "true", "default.api.timeout.ms": 50}
        with pytest.raises(Unreachable):
            await topics("192.0.2.1:9", allowed)

    asyncio.run(story())


def test_a_client_that_does_neither_shows_nothing_and_imports_nothing() -> None:
    async def story() -> None:
        async with secured(None) as node:
            await topics(node.address, {})
            assert node.shown == [None]

    asyncio.run(story())
    script = (
        "import sys, muster.client.aio.admin as a; a.AsyncAdmin();"
        "sys.exit(any('client.credentials' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("shows", "given", "told"),
    [
        (
            lambda ca: ca.sign("n"),
            lambda ca: tls(Authority("other")),
            "CA that this client does not trust; .*truststore",
        ),
        (lambda ca: ca.sign("n", days=-1), tls, "certificate that has expired"),
        (lambda ca: ca.sign("n", "elsewhere"), tls, "certificate for another name; .*ssl.target.name"),
        (lambda ca: None, tls, "does not speak TLS; is it a plaintext port"),
        (lambda ca: ca.sign("n"), lambda ca: {}, "speaks TLS, and this client does not; set security.protocol=SSL"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_at_once(
    ca: Authority, shows: Callable[..., Signed | None], given: Callable[..., dict[str, Any]], told: str
) -> None:
    async def story() -> None:
        async with secured(shows(ca)) as node:
            with pytest.raises(WrongPort, match=rf"listing topics: localhost:\d+ .*{told}"):
                await topics(node.address, given(ca))

    asyncio.run(story())


def test_the_name_that_counts_can_be_said(ca: Authority) -> None:
    async def story() -> None:
        async with secured(ca.sign("n", "elsewhere")) as node:
            assert await topics(node.address, tls(ca) | {"ssl.target.name": "elsewhere"}) == {"orders": 1}
            with pytest.raises(NotTrusted):
                await topics(node.address, tls(ca) | {"ssl.target.name": "nowhere"})

    asyncio.run(story())


def test_a_missing_certificate_and_a_foreign_one_are_told(ca: Authority, own: Signed) -> None:
    async def story() -> None:
        async with secured(own, clients=ca.pem) as node:
            # By its number: of a name with two addresses the other one's refusal may be what is told.
            there = node.address.replace("localhost", "127.0.0.1")
            asked = tls(ca) | {"ssl.target.name": "localhost", "default.api.timeout.ms": 2_000}
            with pytest.raises(Unreachable, match="node may want a certificate of this client"):
                await topics(there, asked)
            mixed = {"ssl.keystore.certificate.chain": ca.sign("a").chain, "ssl.keystore.key": ca.sign("b").key}
            with pytest.raises(NotTrusted, match="what this client has to show cannot be used"):
                await topics(node.address, tls(ca, **mixed))

    asyncio.run(story())


def test_who_is_not_known_hears_it_once_and_no_secret_is_told(ca: Authority, own: Signed) -> None:
    async def story() -> None:
        async with secured(own, tokens={TOKEN}) as node:
            for given in (tls(ca), tls(ca, token="wr0ng")):
                with pytest.raises(AuthenticationError, match=r"does not know who this is .*token\.file") as refused:
                    await topics(node.address, given)
                assert "wr0ng" not in str(refused.value)
            assert len(node.shown) == 2, "it is not tried again"

    asyncio.run(story())


def test_what_is_not_allowed_is_told_with_the_right_that_is_missing(ca: Authority, own: Signed) -> None:
    async def story() -> None:
        async with secured(own, forbids="User:a needs DESCRIBE on CLUSTER") as node:
            with pytest.raises(AuthorizationError, match="listing topics: User:a needs DESCRIBE on CLUSTER"):
                await topics(node.address, tls(ca))
            assert len(node.shown) == 1

    asyncio.run(story())
    for code in (29, 30, 31, 53, 65):
        assert isinstance(refusal(code, "X", "User:a needs READ on GROUP g"), AuthorizationError)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "central"])
@pytest.mark.parametrize(
    ("forbids", "told"), [("", AuthenticationError), ("User:a needs READ on GROUP g", AuthorizationError)]
)
def test_a_member_that_is_not_welcome_fails_by_its_reason(protocol: str, forbids: str, told: type[Exception]) -> None:
    async def story() -> None:
        async with secured(None, forbids=forbids, only_groups=True) as node:
            consumer = AsyncConsumer(bootstrap_servers=node.address, group_id="g", group_protocol=protocol)
            await consumer.subscribe("orders")
            with pytest.raises(told, match=forbids or "the token has ended"):
                await consumer.poll(5)
            await consumer.close()

    asyncio.run(story())


def test_a_token_that_is_replaced_is_shown_from_then_on(ca: Authority, own: Signed, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def story() -> None:
        async with (
            secured(own, tokens={"old"}) as node,
            AsyncAdmin({"bootstrap.servers": node.address, **tls(ca), "token.file": str(file)}) as admin,
        ):
            await admin.list_topics()
            node.tokens = {"new"}
            (tmp_path / "next").write_text("new")
            os.replace(tmp_path / "next", file)
            await admin.list_topics()
            file.unlink()
            await admin.list_topics()
            assert node.shown[-1] == "Bearer new", "a file that is away for a moment changes nothing"

    asyncio.run(story())


def test_a_token_that_was_replaced_while_it_was_refused_is_tried(
    ca: Authority, own: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    monkeypatch.setattr(credentials, "LOOK_AGAIN_S", 3600.0)

    async def story() -> None:
        async with (
            secured(own, tokens={"old"}) as node,
            AsyncAdmin({"bootstrap.servers": node.address, **tls(ca), "token.file": str(file)}) as admin,
        ):
            await admin.list_topics()
            await admin.list_topics()
            node.tokens = {"newer"}
            file.write_text("newer")
            await admin.list_topics()
            assert node.shown[-2:] == ["Bearer old", "Bearer newer"]

    asyncio.run(story())


def test_new_connections_are_made_of_new_certificates(own: Signed, ca: Authority, tmp_path: Path) -> None:
    """A node that comes back with another CA: its clients have read of it meanwhile."""
    file, other = tmp_path / "ca.pem", Authority("next year's")
    file.write_text(ca.pem)

    async def story() -> None:
        given = {"security.protocol": "SSL", "ssl.truststore.location": str(file)}
        async with secured(own) as node:
            admin = AsyncAdmin({"bootstrap.servers": node.address, "default.api.timeout.ms": 10_000, **given})
            await admin.list_topics()
            file.write_text(ca.pem + other.pem)
            await admin.list_topics()
        async with secured(other.sign("node"), port=node.port):
            assert await admin.list_topics() == {"orders": 1}
        await admin.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"security.protocol": "SASL_SSL"}, "security.protocol='SASL_SSL': expected PLAINTEXT or SSL: .*token"),
        ({"ssl.truststore.location": "/x"}, "ssl.truststore.location means nothing with security.protocol=PLAINTEXT"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type='JKS': expected"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "k"}, "go together"),
        ({"security.protocol": "SSL", "ssl.key.password": "s3cr3t"}, "without a key"),
        ({"token": "s3cr3t", "token.file": "t"}, "token and token.file are both set"),
        ({"token": "s3cr3t\nx"}, r"token=\.\.\.: expected a token of"),
    ],
)
def test_properties_that_contradict_each_other(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        load(ClientConfig, given, {})
    assert "s3cr3t" not in str(refused.value)


def test_no_repr_shows_a_secret() -> None:
    secret = {"token": "s3cr3t1", "ssl.keystore.key": "s3cr3t2", "ssl.key.password": "s3cr3t3"}
    config = load(ClientConfig, {"security.protocol": "SSL", "ssl.keystore.certificate.chain": "c", **secret}, {})
    assert "s3cr3t" not in f"{config!r} {config} {config.connection!r} {config.security!r}"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("ssl.truststore.location", None, "cannot be read: No such file"),
        ("ssl.truststore.location", "\xfe", "has no certificate; expected PEM"),
        ("ssl.keystore.location", "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----", "has 0 keys"),
        ("token.file", " ", "expected a token of 1 to"),
        ("token.file", None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_named(name: str, text: str | None, told: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=f"{name}.*{told}"):
        asyncio.run(topics("localhost:1", {"security.protocol": "SSL", name: str(file)}))


def test_commands_take_all_of_it_from_a_file(
    ca: Authority, own: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(ca.pem)
    file = tmp_path / "client.properties"

    async def story() -> None:
        async with secured(own, tokens={TOKEN}) as node:
            file.write_text(
                f"# ours\nbootstrap.servers={node.address}\nsecurity.protocol=SSL\ntoken=\\\n  {TOKEN}\n"
                f"ssl.truststore.location={tmp_path / 'ca.pem'}\n"
            )
            listed = ["topics", "list", "-o", "json"]
            assert await asyncio.to_thread(main, [*listed, "--command-config", str(file)]) == 0
            monkeypatch.setenv("MUSTER_CONFIG", str(file))
            assert await asyncio.to_thread(main, listed) == 0
            assert await asyncio.to_thread(main, [*listed, "--set", "token=wr0ng"]) == 1
            assert await asyncio.to_thread(main, [*listed, "--bootstrap", "127.0.0.1:1"]) == 4
            assert node.shown == [f"Bearer {TOKEN}"] * 2 + ["Bearer wr0ng"]

    asyncio.run(story())
    out, err = capsys.readouterr()
    assert out.count('"orders"') == 2
    assert "does not know who this is" in err
    assert TOKEN not in err
    assert "wr0ng" not in err


@pytest.mark.parametrize(
    ("text", "told"),
    [("token s3cr3t", "line 1 is not a setting"), ("a=1\na=2", "line 2: a is set twice"), (None, "cannot be read")],
)
def test_a_file_of_properties_that_is_none(
    text: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "p").write_text(text)
    assert main(["topics", "list", "--command-config", str(tmp_path / "p")]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "s3cr3t" not in err
