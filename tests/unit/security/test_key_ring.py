"""Keys that change while a node runs."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from muster.coordinator.config import Settings, SettingsError, load_settings
from muster.coordinator.errors import Overloaded
from muster.coordinator.security.oauth_bearer import TokenRefused, UnknownSigningKey
from muster.coordinator.server.security import authentication
from muster.coordinator.server.security.authentication import SigningKeyRing, SigningKeysUnreadable
from tests.support.certificates import authority, server
from tests.support.kafka.memory_node import until
from tests.support.signed import AUDIENCE, jwk, jwks, signed


def settings(url: str) -> Settings:
    return load_settings(
        None,
        {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.audience": f"other, {AUDIENCE}",
            "authorizer": "acl",
        },
    )


def told(url: str, story: Callable[[SigningKeyRing], Awaitable[None]]) -> None:
    async def run() -> None:
        ring = SigningKeyRing(settings(url))
        await ring.start()
        try:
            await story(ring)
        finally:
            ring.close()

    asyncio.run(run())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "keys.json"
    written.write_bytes(jwks(jwk("EC", "old")))
    return written


def put(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)


def test_a_new_key_in_the_file_is_believed_when_a_token_names_it(file: Path) -> None:
    async def story(ring: SigningKeyRing) -> None:
        assert (await ring.verify(signed(kid="old"))).name == "robot"
        put(file, jwks(jwk("EC", "new", 1)))
        assert (await ring.verify(signed(kid="new", number=1))).name == "robot"
        with pytest.raises(UnknownSigningKey):
            await ring.verify(signed(kid="old"))

    told(f"file://{file}", story)


def test_tokens_of_unknown_keys_make_the_keys_be_read_once_in_a_while(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []

    async def story(ring: SigningKeyRing) -> None:
        read = ring._read
        monkeypatch.setattr(ring, "_read", lambda: (reads.append(1), read()))
        results = await asyncio.gather(
            *(ring.verify(signed(kid=f"none-{number}")) for number in range(20)), return_exceptions=True
        )
        assert {type(each) for each in results} == {UnknownSigningKey}
        assert len(reads) == 1

    told(f"file://{file}", story)


def test_a_file_that_is_broken_leaves_the_keys_as_they_are(file: Path) -> None:
    async def story(ring: SigningKeyRing) -> None:
        for broken in (b"{", b'{"keys": []}', b" " * (2 << 20)):
            put(file, broken)
            assert not await ring._refresh()
        put(file, None)
        assert not await ring._refresh()
        assert (await ring.verify(signed(kid="old"))).name == "robot"

    told(f"file://{file}", story)


def test_a_file_that_changes_is_read_without_being_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "LOOK_S", 0.001)

    async def story(ring: SigningKeyRing) -> None:
        put(file, jwks(jwk("EC", "new", 1)))
        await until(lambda: ring._keys.found.keys() == {("ES256", "new")})

    told(f"file://{file}", story)


def test_a_node_does_not_start_without_a_file_of_keys(tmp_path: Path) -> None:
    async def nothing(ring: SigningKeyRing) -> None:
        raise AssertionError

    with pytest.raises(SigningKeysUnreadable, match=r"sasl.oauthbearer.jwks.endpoint.url is file:"):
        told(f"file://{tmp_path / 'none'}", nothing)


def test_a_flood_of_tokens_is_sent_away_rather_than_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MOST_WAITING_TO_HASH", 3)

    async def story(ring: SigningKeyRing) -> None:
        results = await asyncio.gather(
            *(ring.verify(signed(kid="old", number=1)) for _ in range(20)), return_exceptions=True
        )
        assert [type(each) for each in results[:3]] == [TokenRefused] * 3
        assert {type(each) for each in results[3:]} == {Overloaded}

    told(f"file://{file}", story)


@pytest.mark.parametrize("url", ["http://idp.example/keys", "keys.json", "ftp://x/y", "https:///keys", "file://"])
def test_keys_come_over_https_or_from_a_file(url: str) -> None:
    with pytest.raises(SettingsError, match=r"https://HOST/PATH, file:///PATH"):
        settings(url)


def test_a_token_for_anybody_is_for_nobody() -> None:
    with pytest.raises(SettingsError, match=r"expected.audience is empty"):
        load_settings(None, {"sasl.oauthbearer.jwks.endpoint.url": "https://idp.example/keys"})


@contextmanager
def endpoint(directory: Path, status: int, body: bytes, location: str = "") -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            pass

    (directory / "server.pem").write_bytes(server().pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    answering = HTTPServer(("127.0.0.1", 0), Answers)
    answering.socket = context.wrap_socket(answering.socket, server_side=True)
    thread = threading.Thread(target=answering.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://localhost:{answering.server_port}/keys"
    finally:
        answering.shutdown()
        thread.join()
        answering.server_close()


def test_keys_by_https_from_whom_we_believe_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_bytes(authority().certificate_pem)

    async def unbelieved(ring: SigningKeyRing) -> None:
        with pytest.raises(TokenRefused):
            await ring.verify(signed())

    async def believed(ring: SigningKeyRing) -> None:
        assert (await ring.verify(signed())).name == "robot"

    with endpoint(tmp_path, 200, jwks(jwk("EC", "k"))) as url:
        told(url, unbelieved)  # nobody has said that its authority is one
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        told(url, believed)
        with endpoint(tmp_path, 302, b"", url) as elsewhere:
            told(elsewhere, unbelieved)
    with endpoint(tmp_path, 500, b"") as broken:
        told(broken, unbelieved)


def test_who_keeps_what_was_believed_hears_of_other_keys_and_only_of_those(file: Path) -> None:
    heard: list[int] = []

    async def story(ring: SigningKeyRing) -> None:
        ring.changed = lambda: heard.append(1)
        assert await ring._refresh()
        assert not heard
        put(file, jwks(jwk("EC", "new", 1)))
        assert await ring._refresh()
        assert heard == [1]

    told(f"file://{file}", story)
