"""SCRAM by the vectors of its RFCs, against another implementation, and against any bytes."""

import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from muster.coordinator.security.login import LoginFailed, SaslChallenge, SaslSuccess
from muster.coordinator.security.passwords import (
    SCRAM_HASHES,
    SCRAM_KEY_BYTES,
    ScramServer,
    format_salt,
    make_scram_credential,
    salt_password,
    scram_stand_in,
)
from muster.coordinator.security.state import ScramCredential

SALT = format_salt(1 << 129)
KEPT = {
    name: make_scram_credential(name, salt_password(name, "pencil-case", SALT, 4096), SALT, 4096)
    for name in SCRAM_HASHES
}


def server(mechanism: str = "SCRAM-SHA-256", name: str = "user", nonce: str = "abc") -> ScramServer:
    def credential_of(asked: str) -> ScramCredential | None:
        return KEPT[mechanism] if asked == name else None

    return ScramServer(mechanism, nonce, credential_of, lambda asked: scram_stand_in(b"secret", mechanism, 4096, asked))


def test_the_conversation_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = make_scram_credential("SCRAM-SHA-256", salt_password("SCRAM-SHA-256", "pencil", salt, 4096), salt, 4096)
    talk = ScramServer("SCRAM-SHA-256", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", lambda name: kept, lambda name: kept)
    assert talk.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == SaslChallenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    said = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert talk.evaluate(said) == SaslSuccess("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(("before", "taken"), [("", True), ("mine", True), ("else", False), ("minemine", False)])
def test_a_client_may_say_its_own_half_of_the_nonce_twice(before: str, taken: bool) -> None:
    """As librdkafka does before 2.6.1, such as kcat of Debian; Kafka 4 refuses it, Kafka 3.8.1 to 3.9 did not."""
    kept, talk = KEPT["SCRAM-SHA-256"], server()
    first = talk.evaluate(b"n,,n=user,r=mine")
    assert isinstance(first, SaslChallenge)
    plain = f"c=biws,r={before}mineabc"
    said = b"n=user,r=mine," + first.data + b"," + plain.encode()
    client_key = hmac.digest(salt_password("SCRAM-SHA-256", "pencil-case", SALT, 4096), b"Client Key", "sha256")
    signature = hmac.digest(kept.stored_key, said, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    last = plain.encode() + b",p=" + proof
    if taken:
        assert isinstance(talk.evaluate(last), SaslSuccess)
    else:
        with pytest.raises(LoginFailed, match=r"^nonce$"):
            talk.evaluate(last)


@pytest.mark.parametrize("mechanism", sorted(SCRAM_HASHES))
@pytest.mark.parametrize(("name", "password", "right"), [
    ("user", "pencil-case", True), ("user", "Pencil-case", False), ("nobody", "pencil-case", False),
])  # fmt: skip
def test_another_implementation_s_client(mechanism: str, name: str, password: str, right: bool) -> None:
    client, talk = ScramClient([mechanism], name, password), server(mechanism)
    first = talk.evaluate(client.get_client_first().encode())
    assert isinstance(first, SaslChallenge)
    client.set_server_first(first.data.decode())
    last = client.get_client_final().encode()
    if right:
        end = talk.evaluate(last)
        assert isinstance(end, SaslSuccess)
        client.set_server_final(end.data.decode())
        assert end.name == "user"
    else:
        with pytest.raises(LoginFailed, match=r"^credentials$"):
            talk.evaluate(last)


def test_a_name_that_nobody_has_looks_like_anybody_s_and_always_the_same() -> None:
    def asked(name: str) -> bytes:
        answer = server().evaluate(f"n,,n={name},r=x".encode())
        assert isinstance(answer, SaslChallenge)
        return answer.data

    known, unknown = asked("user"), asked("nobody")
    assert unknown == asked("nobody") != asked("nobody2")
    shapes = [[part[:2] for part in data.decode().split(",")] for data in (known, unknown)]
    assert shapes[0] == shapes[1] == ["r=", "s=", "i="]
    assert known.split(b",")[2] == unknown.split(b",")[2]
    for number in range(500):
        salt = scram_stand_in(b"secret", "SCRAM-SHA-512", 4096, f"user-{number}").salt
        assert 22 <= len(salt) <= 26
        assert salt.isalnum()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,a=other,n=user,r=x", "another's name"),
        (b"n,,n=user,r=x,tokenauth=true", "delegation token"),
        (b"n,,m=must,n=user,r=x", "malformed"),
        (b"n,,n=user,r=x,m=must", "malformed"),
        (b"n,,n=us=2Der,r=x", "malformed"),
        (b"n,,n=,r=x", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user,r=" + b"x" * 300, "malformed"),
        (b"n,,n=" + b"u" * 300 + b",r=x", "malformed"),
        (b"n,,n=user", "malformed"),
        (b"\xff", "malformed"),
        (b"x" * 5_000, "malformed"),
    ],
)
def test_first_words_that_are_refused(said: bytes, why: str) -> None:
    with pytest.raises(LoginFailed, match=f"^{why}$"):
        server(name="u" * 300).evaluate(said)


def test_a_comma_in_a_name_is_written_otherwise() -> None:
    talk = server(name="a,b=c")
    talk.evaluate(b"n,,n=a=2Cb=3Dc,r=x")
    assert talk._known


@pytest.mark.parametrize("last", [b"c=eSws,r=xabc,p=", b"c=biws,r=xabd,p=", b"c=biws,r=x,p=", b"c=,r=xabc,p="])
def test_last_words_have_to_fit_the_first(last: bytes) -> None:
    talk = server()
    talk.evaluate(b"n,,n=user,r=x")
    with pytest.raises(LoginFailed):
        talk.evaluate(last + b"A" * 43 + b"=")


@given(first=st.binary(max_size=200), last=st.binary(max_size=200), mechanism=st.sampled_from(sorted(SCRAM_HASHES)))
def test_any_bytes_are_answered_or_refused_and_nobody_comes_in_by_them(
    first: bytes, last: bytes, mechanism: str
) -> None:
    for begun in (first, b"n,,n=user,r=" + first, b"n,,n=user,r=x"):
        talk = server(mechanism)
        try:
            assert isinstance(talk.evaluate(begun), SaslChallenge)
        except LoginFailed:
            continue
        for said in (last, b"c=biws,r=xabc,p=" + last):
            with pytest.raises(LoginFailed):
                talk.evaluate(said)


def test_keys_are_as_long_as_their_hash() -> None:
    for mechanism, size in SCRAM_KEY_BYTES.items():
        for kept in (KEPT[mechanism], scram_stand_in(b"s", mechanism, 4096, "x")):
            assert (len(kept.stored_key), len(kept.server_key)) == (size, size)
