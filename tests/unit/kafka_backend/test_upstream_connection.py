"""One connection to a broker of the upstream: how it begins, what ends it, and that no secret leaves by an error."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramMechanism

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka_backend.upstream import connection as line_module
from muster.coordinator.kafka_backend.upstream.connection import (
    MOST_ANSWER_BYTES,
    MOST_GREETING_BYTES,
    MOST_UNDER_WAY,
    UpstreamConnection,
    open_connection,
)
from muster.coordinator.kafka_backend.upstream.protocol import (
    READING_APIS,
    SUPPORTED_APIS,
    Unreached,
    Unspoken,
    UpstreamAddress,
    UpstreamCredentials,
    UpstreamError,
    UpstreamTlsFiles,
)
from tests.fakes.upstream_broker import HANG_UP, SILENCE, UpstreamBroker
from tests.support import certificates
from tests.support.kafka.memory_node import until

BEAT = struct("HeartbeatRequest")(group_id="g", member_id="m", generation_id=1)
WELL = struct("HeartbeatResponse")()
SECRET = "correct-horse"


async def to(
    broker: UpstreamBroker, login: UpstreamCredentials | None = None, certificates: UpstreamTlsFiles | None = None
) -> UpstreamConnection:
    return await open_connection(
        broker.address, UpstreamAddress((broker.address,), login, certificates, connect_s=5, answer_s=5)
    )


async def refused(broker: UpstreamBroker, login: UpstreamCredentials | None = None) -> str:
    with pytest.raises(UpstreamError) as caught:
        await to(broker, login)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_both_sides_speak_the_highest_version_that_both_know() -> None:
    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: WELL}) as broker:
            broker.offers[12] = (0, 3)
            line = await to(broker)
            assert (line.versions["Heartbeat"], line.versions["Fetch"]) == (3, 12)
            assert (await line.send_request("Heartbeat", BEAT, 5)).error_code == 0
            line.close()

    asyncio.run(story())


def test_an_upstream_that_does_not_know_the_greeting_says_so_in_its_first_version() -> None:
    async def story() -> None:
        async with UpstreamBroker() as broker:
            broker.offers[18] = (0, 2)
            line = await to(broker)
            assert line.versions["Produce"] == 9
            assert len(broker.of("ApiVersions")) == 2
            line.close()

    asyncio.run(story())


def test_what_one_side_does_not_speak_is_named_with_its_versions() -> None:
    async def story() -> None:
        async with UpstreamBroker() as broker:
            del broker.offers[12]
            line = await to(broker)
            with pytest.raises(UpstreamError, match="does not speak Heartbeat 3 to 4"):
                await line.send_request("Heartbeat", BEAT, 5)
            line.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (HANG_UP, "closed the connection"),
        (b"\0\0\0\x63rest", "sent an invalid answer: correlation id 99; expected 2"),
        (b"\0\0\0\x02\0\0\0", "sent an invalid answer to Heartbeat"),
    ],
)
def test_what_is_no_answer_ends_the_line_for_all_that_is_under_way(said: Any, sentence: str) -> None:
    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: said}) as broker:
            line = await to(broker)
            asked = [line.send_request("Heartbeat", BEAT, 5) for _ in range(3)]
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(each, Unreached) for each in told)
            assert sentence in str(told[0])
            assert not line.open
            with pytest.raises(Unreached):
                await line.send_request("Heartbeat", BEAT, 5)

    asyncio.run(story())


def test_an_answer_that_does_not_come_ends_the_line() -> None:
    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: SILENCE}) as broker:
            line = await to(broker)
            with pytest.raises(Unreached, match=r"did not answer Heartbeat within 0\.01 s"):
                await line.send_request("Heartbeat", BEAT, 0.01)
            assert not line.open

    asyncio.run(story())


def test_an_answer_that_is_read_when_its_time_is_over_has_come_all_the_same() -> None:
    """Of a process that stood still: in one turn of its loop it reads the answer and is told that it is late."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        line = UpstreamConnection(Address("127.0.0.1", 9092), "muster")
        line.connection_made(Unplugged())
        answer = b"".join([(1).to_bytes(4, "big"), b"\0", *encode("HeartbeatResponse", 4, WELL)])
        loop.call_later(0, line.data_received, len(answer).to_bytes(4, "big") + answer)
        assert bytes(await line.ask_in(4, "Heartbeat", BEAT, 0)) == answer
        assert line.open

    asyncio.run(story())


class Unplugged(asyncio.Transport):
    """Leads nowhere."""

    def writelines(self, pieces: Any) -> None:
        pass

    def abort(self) -> None:
        pass


def test_a_frame_that_is_too_long_is_refused_by_its_length() -> None:
    async def story(size: int, answers: dict[str, Any]) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(size.to_bytes(4, "big"))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname()[:2])
        with pytest.raises(Unreached) as caught:
            await open_connection(address, UpstreamAddress((address,), connect_s=5))
        server.close()
        return str(caught.value)

    told = asyncio.run(story(MOST_GREETING_BYTES + 1, {}))
    assert f"a frame of {MOST_GREETING_BYTES + 1} bytes; expected 4 to {MOST_GREETING_BYTES}" in told
    assert MOST_ANSWER_BYTES > MOST_GREETING_BYTES, "more is taken once we are in"


def test_no_more_requests_than_so_many_are_under_way_and_the_next_one_leaves_when_there_is_room() -> None:
    async def story() -> None:
        answers = asyncio.Event()

        async def answered(request: Any) -> Any:
            await answers.wait()
            return struct("HeartbeatResponse")()

        async with UpstreamBroker({"Heartbeat": answered}) as broker:
            line = await to(broker)
            asked = [asyncio.ensure_future(line.send_request("Heartbeat", BEAT, 5)) for _ in range(MOST_UNDER_WAY + 2)]
            await until(lambda: len(broker.of("Heartbeat")) == 1)
            assert line.under_way == MOST_UNDER_WAY
            answers.set()
            assert len(await asyncio.gather(*asked)) == MOST_UNDER_WAY + 2

    asyncio.run(story())


def test_who_waits_for_room_fails_with_the_connection_and_no_more_wait_than_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "MOST_WAITING", MOST_UNDER_WAY + 1)

    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: SILENCE}) as broker:
            line = await to(broker)
            asked = [asyncio.ensure_future(line.send_request("Heartbeat", BEAT, 5)) for _ in range(MOST_UNDER_WAY + 1)]
            await asyncio.sleep(0)
            with pytest.raises(UpstreamError, match=r"requests wait for 127\.0\.0\.1:.*; at most so many may"):
                await line.send_request("Heartbeat", BEAT, 5)
            line.close()
            assert all(isinstance(each, Unreached) for each in await asyncio.gather(*asked, return_exceptions=True))

    asyncio.run(story())


# -- who we are -----------------------------------------------------------------------------------------------------


class Asks:
    """The server's side of SASL."""

    def __init__(self, mechanism: str, lifetime_ms: int = 0) -> None:
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        self.said: list[bytes] = []
        self._scram: Any = None

    def answers(self) -> dict[str, Any]:
        return {"SaslHandshake": self.shake, "SaslAuthenticate": self.hear, "Heartbeat": lambda request: WELL}

    def shake(self, request: Any) -> Any:
        code = 0 if request.mechanism == self.mechanism else 33
        return struct("SaslHandshakeResponse")(error_code=code, mechanisms=[self.mechanism])

    def hear(self, request: Any) -> Any:
        data = bytes(request.auth_bytes)
        self.said.append(data)
        made = struct("SaslAuthenticateResponse")
        try:
            code, answer = self._hear(data)
        except Exception as error:
            return made(error_code=58, error_message=f"{error} {SECRET}")
        return made(error_code=code, auth_bytes=answer, session_lifetime_ms=self.lifetime_ms)

    def _hear(self, data: bytes) -> tuple[int, bytes]:
        if self.mechanism == "PLAIN":
            return (0 if data == f"\0muster\0{SECRET}".encode() else 58), b""
        if self.mechanism == "OAUTHBEARER":
            if data == b"\x01":
                return 58, b""
            return 0, b"" if data == b"n,,\x01auth=Bearer a.b.c\x01\x01" else b'{"status":"invalid_token"}'
        if self._scram is None:
            known = ScramMechanism(self.mechanism)
            self._scram = known.make_server(lambda name: known.make_auth_info(SECRET, iteration_count=4096))
            self._scram.set_client_first(data.decode())
            return 0, self._scram.get_server_first().encode()
        self._scram.set_client_final(data.decode())
        return 0, self._scram.get_server_final().encode()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_lets_in_and_a_wrong_one_does_not(mechanism: str) -> None:
    async def story() -> None:
        async with UpstreamBroker(Asks(mechanism, lifetime_ms=1_000).answers()) as broker:
            line = await to(broker, UpstreamCredentials(mechanism, "muster", SECRET))
            assert (await line.send_request("Heartbeat", BEAT, 5)).error_code == 0
            assert line.stale_s is not None
            assert not line.stale
            line.close()
        async with UpstreamBroker(Asks(mechanism).answers()) as broker:
            told = await refused(broker, UpstreamCredentials(mechanism, "muster", "wrong"))
            assert f"refuses the login by {mechanism}: SASL_AUTHENTICATION_FAILED (58)" in told

    asyncio.run(story())


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    class Liar(Asks):
        def _hear(self, data: bytes) -> tuple[int, bytes]:
            code, answer = super()._hear(data)
            return code, b"v=" + b"A" * 43 + b"=" if answer.startswith(b"v=") else answer

    async def story() -> None:
        async with UpstreamBroker(Liar("SCRAM-SHA-256").answers()) as broker:
            told = await refused(broker, UpstreamCredentials("SCRAM-SHA-256", "muster", SECRET))
            assert "did not prove by SCRAM-SHA-256 that it knows the password" in told

    asyncio.run(story())


def test_a_token_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = UpstreamCredentials("OAUTHBEARER", token_file=str(file))

    async def story() -> None:
        asks = Asks("OAUTHBEARER")
        async with UpstreamBroker(asks.answers()) as broker:
            assert "the token for the upstream cannot be read: No such file" in await refused(broker, login)
            file.write_text("old.er.one\n")
            assert "refuses the login by OAUTHBEARER" in await refused(broker, login)
            assert asks.said[-1] == b"\x01"
            file.write_text("a.b.c\n")
            (await to(broker, login)).close()

    asyncio.run(story())


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    async def story() -> None:
        async with UpstreamBroker(Asks("SCRAM-SHA-512").answers()) as broker:
            told = await refused(broker, UpstreamCredentials("PLAIN", "muster", SECRET))
            assert "does not take engine.kafka.sasl.mechanism PLAIN: UNSUPPORTED_SASL_MECHANISM (33)" in told
            assert "it offers SCRAM-SHA-512" in told

    asyncio.run(story())


def test_secrets_are_not_shown() -> None:
    assert SECRET not in repr(
        UpstreamAddress((), UpstreamCredentials("PLAIN", "a", SECRET), UpstreamTlsFiles(key_password=SECRET))
    )


def test_an_upstream_behind_tls_has_to_show_a_certificate_that_is_believed(tmp_path: Path) -> None:
    authority, shown = certificates.authority(), certificates.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.write(tmp_path, "server.pem", shown.pem()))
    believed = certificates.write(tmp_path, "ca.pem", authority.certificate_pem)
    other = certificates.write(tmp_path, "other.pem", certificates.stranger().certificate_pem)

    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: WELL}, tls=context) as broker:
            line = await to(broker, certificates=UpstreamTlsFiles(believed))
            assert (await line.send_request("Heartbeat", BEAT, 5)).error_code == 0
            line.close()
            for bad, sentence in ((other, "cannot be reached"), (str(tmp_path / "no"), "cannot be used: No such file")):
                with pytest.raises(UpstreamError, match=sentence):
                    await to(broker, certificates=UpstreamTlsFiles(bad))

    asyncio.run(story())


def test_a_broker_that_speaks_no_tls_and_hangs_up_is_told_with_a_reason() -> None:
    async def story() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            address = Address(*server.sockets[0].getsockname())
            with pytest.raises(Unreached) as caught:
                await open_connection(
                    address, UpstreamAddress((address,), None, UpstreamTlsFiles(), connect_s=5, answer_s=5)
                )
        assert not str(caught.value).endswith("cannot be reached: "), "a colon, and no reason"

    asyncio.run(story())


def test_a_client_that_only_reads_sends_nothing_that_would_change_anything() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            reach = UpstreamAddress((broker.address,), connect_s=5, answer_s=5, reads_only=True)
            line = await open_connection(broker.address, reach)
            for api in SUPPORTED_APIS.keys() - READING_APIS:
                with pytest.raises(Unspoken):
                    await line.send_request(api, None, 5)
            line.close()
            assert [api for api, _ in broker.asked] == ["ApiVersions"]

    asyncio.run(whole())


def test_what_only_reads_changes_nothing() -> None:
    assert not READING_APIS & {
        "Produce", "OffsetCommit", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "CreateTopics",
        "InitProducerId", "AddPartitionsToTxn", "FindCoordinator",
    }  # fmt: skip
