"""Whose name counts on a connection to a broker: the one that the broker has said yes to, and no other (KB-X10)."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka_backend.proxy.client_login import RelayedExchange, name_in_token
from muster.coordinator.security.login import LoginFailed, SaslChallenge, SaslSuccess

FIRST = b"n,,n=alice,r=abc"
SERVER_FIRST = b"r=abcdef,s=c2FsdA==,i=4096"
FINAL = b"c=biws,r=abcdef,p=cHJvb2Y="
SERVER_FINAL = b"v=c2lnbmF0dXJl"
REFUSED = 58


def token(**claims: object) -> bytes:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.{part}.\x01\x01".encode()


def said(exchange: RelayedExchange, data: bytes, code: int = 0, answer: bytes = b"") -> SaslChallenge | SaslSuccess:
    exchange.evaluate(data)
    assert exchange.said == data, "what the client says passes as it is"
    return exchange.answered(code, answer)


def test_plain_is_whom_the_broker_took_in() -> None:
    assert said(RelayedExchange("PLAIN"), b"\0alice\0secret") == SaslSuccess("alice")
    with pytest.raises(LoginFailed):
        said(RelayedExchange("PLAIN"), b"\0alice\0wrong", REFUSED)


@pytest.mark.parametrize(
    "data", [b"", b"alice", b"\0\0secret", b"\0alice\0", b"admin\0alice\0secret", b"\0a\0b\0c", b"\0\xff\0secret"]
)
def test_what_names_nobody_or_two_is_not_passed_on(data: bytes) -> None:
    with pytest.raises(LoginFailed):
        RelayedExchange("PLAIN").evaluate(data)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_counts_with_the_last_step_alone(mechanism: str) -> None:
    exchange = RelayedExchange(mechanism)
    assert said(exchange, FIRST, 0, SERVER_FIRST) == SaslChallenge(SERVER_FIRST), "nobody has proved anything"
    assert said(exchange, FINAL, 0, SERVER_FINAL) == SaslSuccess("alice", SERVER_FINAL)


@pytest.mark.parametrize("answers", [[(0, SERVER_FINAL)], [(0, SERVER_FIRST), (0, b"e=invalid-proof")]])
def test_scram_takes_nothing_else_for_a_yes(answers: list[tuple[int, bytes]]) -> None:
    exchange = RelayedExchange("SCRAM-SHA-256")
    for data, (code, answer) in zip((FIRST, FINAL), answers, strict=False):
        assert isinstance(said(exchange, data, code, answer), SaslChallenge)


def test_a_name_is_that_of_the_first_message_whatever_the_last_one_says() -> None:
    exchange = RelayedExchange("SCRAM-SHA-256")
    said(exchange, b"n,,n=al=2Cice=3D,r=abc", 0, SERVER_FIRST)
    told = said(exchange, b"c=biws,n=admin,r=abcdef,p=x", 0, SERVER_FINAL)
    assert told == SaslSuccess("al,ice=", SERVER_FINAL)


@pytest.mark.parametrize("value", ["true", "True", "TRUE", "1"])
def test_whose_a_delegation_token_is_its_id_does_not_say(value: str) -> None:
    with pytest.raises(LoginFailed, match="delegation token"):
        RelayedExchange("SCRAM-SHA-256").evaluate(f"n,,n=id,r=abc,tokenauth={value}".encode())


def test_a_bearer_is_whom_the_token_speaks_of_once_the_broker_believes_it() -> None:
    assert said(RelayedExchange("OAUTHBEARER"), token(sub="alice")) == SaslSuccess("alice")
    assert said(RelayedExchange("OAUTHBEARER", "client_id"), token(sub="x", client_id="alice")) == SaslSuccess("alice")
    complaint = b'{"status":"invalid_token"}'
    exchange = RelayedExchange("OAUTHBEARER")
    assert said(exchange, token(sub="admin"), 0, complaint) == SaslChallenge(complaint), "a code of 0 is no yes"
    with pytest.raises(LoginFailed):
        said(exchange, b"\x01", REFUSED)


def test_who_shows_another_token_behind_a_complaint_is_whom_that_speaks_of() -> None:
    exchange = RelayedExchange("OAUTHBEARER")
    said(exchange, token(sub="admin"), 0, b"{}")
    assert said(exchange, token(sub="alice")) == SaslSuccess("alice")


def test_the_byte_that_ends_a_refused_login_is_nobodys_login() -> None:
    exchange = RelayedExchange("OAUTHBEARER")
    said(exchange, token(sub="admin"), 0, b"{}")
    assert isinstance(said(exchange, b"\x01"), SaslChallenge)


@pytest.mark.parametrize(
    "text",
    ["opaque", "a.b", "a.b.c.d", "a.%%%.c", "a.bm8.c", "a.W10.c", "a.eyJzdWIiOjF9.c", "a.eyJzdWIiOiIifQ.c",
     "a." + base64.urlsafe_b64encode(b'{"sub":"alice","sub":"admin"}').decode().rstrip("=") + ".c",
     "a." + base64.urlsafe_b64encode(b"[" * 9_000).decode().rstrip("=") + ".c"],
)  # fmt: skip
def test_a_token_that_names_nobody_is_not_passed_on(text: str) -> None:
    with pytest.raises(LoginFailed):
        name_in_token(text, "sub")


def test_nobody_speaks_out_of_turn() -> None:
    exchange = RelayedExchange("SCRAM-SHA-256")
    with pytest.raises(LoginFailed):
        exchange.answered(0, SERVER_FINAL)
    exchange.evaluate(FIRST)
    with pytest.raises(LoginFailed):
        exchange.evaluate(FIRST)
    exchange.answered(0, SERVER_FIRST)
    said(exchange, FINAL, 0, SERVER_FINAL)
    with pytest.raises(LoginFailed):
        exchange.evaluate(FIRST)


WORDS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([FIRST, FINAL, b"\0alice\0secret", b"\0admin\0x", b"\x01", token(sub="alice"), token(sub="admin")]),
)
ANSWERS = st.one_of(st.binary(max_size=40), st.sampled_from([b"", SERVER_FIRST, SERVER_FINAL, b"{}", b"e=no"]))


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]),
    st.lists(st.tuples(WORDS, st.sampled_from([0, 0, 0, REFUSED, -1]), ANSWERS), max_size=5),
)
def test_any_bytes_give_no_name_that_the_broker_did_not_say_yes_to(
    mechanism: str, steps: list[tuple[bytes, int, bytes]]
) -> None:
    exchange, codes = RelayedExchange(mechanism), []
    for data, code, answer in steps:
        try:
            exchange.evaluate(data)
            codes.append(code)
            step = exchange.answered(code, answer)
        except LoginFailed:
            continue
        if isinstance(step, SaslSuccess):
            assert step.name
            assert codes == [0] * len(codes), "no answer so far was a refusal"
            if mechanism.startswith("SCRAM"):
                assert len(codes) == 2
                assert answer.startswith(b"v=")
            if mechanism == "OAUTHBEARER":
                assert answer == b""
