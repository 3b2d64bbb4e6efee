"""PLAIN and OAUTHBEARER, word for word, and by any bytes."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.security.login import LoginFailed, LoginWork, SaslChallenge, SaslSuccess
from muster.coordinator.security.oauth_bearer import OauthBearerServer, TokenRefused, TokenSubject, parse_bearer_message
from muster.coordinator.security.passwords import PlainServer, make_password_hash, plain_stand_in, scrypt_password
from muster.coordinator.security.state import PasswordHash

KEPT = make_password_hash("correct horse", b"s" * 16)


def plain() -> PlainServer:
    def hash_of(name: str) -> PasswordHash | None:
        return KEPT if name == "alice" else None

    return PlainServer(hash_of, lambda name: plain_stand_in(b"secret", name))


def test_scrypt_by_a_vector_of_rfc_7914() -> None:
    assert (
        scrypt_password("pleaseletmein", b"SodiumChloride", 16384, 8, 1)
        .hex()
        .startswith("7023bdcb3afd7348461c06cd81fd38eb")
    )


@pytest.mark.parametrize("message", [b"\0alice\0correct horse", b"alice\0alice\0correct horse"])
def test_the_right_password(message: bytes) -> None:
    assert plain().evaluate(message).run() == SaslSuccess("alice")


@pytest.mark.parametrize("message", [b"\0alice\0correct horsE", b"\0bob\0correct horse"])
def test_a_wrong_one_and_an_unknown_name_are_hashed_alike_and_fail_alike(message: bytes) -> None:
    work = plain().evaluate(message)
    assert isinstance(work, LoginWork)
    with pytest.raises(LoginFailed, match=r"^credentials$"):
        work.run()
    other = plain_stand_in(b"secret", "bob")
    assert (other.n, other.r, other.p, len(other.salt), len(other.hash)) == (KEPT.n, KEPT.r, KEPT.p, 16, 32)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0alice\0",
        b"\0\0pw",
        b"bob\0alice\0pw",
        b"\0a\0b\0c",
        b"\0\xff\0x",
        b"\0a\0" + b"x" * 1025,
    ],
)
def test_what_is_no_message_of_plain(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        plain().evaluate(message)


@given(st.binary(max_size=300))
def test_any_bytes_are_work_or_refused(data: bytes) -> None:
    with suppress(LoginFailed):
        assert isinstance(plain().evaluate(data), LoginWork)


def bearer() -> OauthBearerServer:
    def verify(token: str) -> TokenSubject:
        if token != "a.b.c":
            raise TokenRefused("signature")
        return TokenSubject("robot", 100.0)

    return OauthBearerServer(verify)


def test_a_token_that_is_believed() -> None:
    work = bearer().evaluate(b"n,,\x01auth=Bearer a.b.c\x01host=h\x01port=1\x01\x01")
    assert isinstance(work, LoginWork)
    assert work.run() == SaslSuccess("robot", until_s=100.0)
    named = bearer().evaluate(b"n,a=other,\x01auth=Bearer a.b.c\x01\x01")
    assert isinstance(named, LoginWork)
    with pytest.raises(LoginFailed, match="another's name"):
        named.run()


def test_a_token_that_is_not_is_told_so_before_the_login_fails() -> None:
    talk = bearer()
    work = talk.evaluate(b"n,,\x01auth=Bearer x.y.z\x01\x01")
    assert isinstance(work, LoginWork)
    with pytest.raises(LoginFailed, match=r"^signature$"):
        work.run()
    told = talk.refused("signature")
    assert isinstance(told, SaslChallenge)
    assert json.loads(told.data) == {"status": "invalid_token"}
    with pytest.raises(LoginFailed, match=r"^signature$"):
        talk.evaluate(b"\x01")


@pytest.mark.parametrize(
    "text",
    [
        "", "n,,", "n,,\x01\x01", "n,,\x01auth=Bearer\x01\x01", "n,,\x01auth=Basic x\x01\x01",
        "p=x,,\x01auth=Bearer x\x01\x01",
        "n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", "n,,\x01auth=Bearer x\x01", "n,x,\x01auth=Bearer x\x01\x01",
        "n,,x\x01auth=Bearer x\x01\x01", "n,,\x01=x\x01\x01", "n\x01auth=Bearer x\x01\x01",
    ],
)  # fmt: skip
def test_what_is_no_message_of_oauthbearer(text: str) -> None:
    with pytest.raises(LoginFailed):
        parse_bearer_message(text)


@given(st.binary(max_size=300))
def test_any_bytes_are_work_or_refused_by_bearer(data: bytes) -> None:
    for message in (data, b"n,,\x01auth=Bearer " + data + b"\x01\x01"):
        try:
            assert isinstance(bearer().evaluate(message), LoginWork)
        except LoginFailed:
            continue
