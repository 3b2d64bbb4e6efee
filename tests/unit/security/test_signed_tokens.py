"""Whom a signed token speaks of: by a key of the set, with that key's algorithms, and if it is meant for us."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from muster.coordinator.security.oauth_bearer import (
    SigningKeySet,
    TokenRefused,
    TokenRequirements,
    TokenSubject,
    UnknownSigningKey,
    parse_key_set,
    verify_token,
)
from tests.support.signed import AUDIENCE, ISSUER, claims, jwk, jwks, private_key, signed

DAY_S = 86_400
"""Times of the table below are said when it is made, and heard whenever it is its turn in a run of any length."""
EXPECTED = TokenRequirements(ISSUER, frozenset({AUDIENCE, "other"}))
KEYS = parse_key_set(jwks(jwk("RSA", "r"), jwk("EC", "k"), jwk("OKP", "o")))


def heard(token: str, keys: SigningKeySet = KEYS, expected: TokenRequirements = EXPECTED) -> TokenSubject:
    return verify_token(token, keys, expected, time.time())


@pytest.mark.parametrize(
    ("kind", "algorithm", "kid"),
    [
        *[("RSA", each, "r") for each in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")],
        ("EC", "ES256", "k"),
        ("OKP", "EdDSA", "o"),
    ],
)
def test_each_algorithm_of_its_keys(kind: str, algorithm: str, kid: str) -> None:
    speaker = heard(signed(kind, algorithm, kid))
    assert speaker.name == "robot"
    assert 85 < speaker.until_s - time.time() < 91
    assert heard(signed(kind, algorithm, None), parse_key_set(jwks(jwk(kind, "x")))).name == "robot"


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: dict[str, Any], secret: bytes | None) -> str:
    text = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims()).encode())}"
    return f"{text}.{b64(hmac.digest(secret, text.encode(), sha256)) if secret is not None else ''}"


def test_no_algorithm_and_no_shared_secret_are_believed() -> None:
    public = private_key("RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    shared = {"kty": "oct", "k": b64(b"s" * 32), "kid": "s"}
    keys = parse_key_set(jwks(jwk("RSA", "r"), shared))
    assert (keys.passed_over, len(keys.found)) == (1, 6)
    for alg in ("none", "None", "nOnE", ""):
        with pytest.raises(TokenRefused):
            heard(by_hand({"alg": alg, "kid": "r"}, None), keys)
    for kid, secret in (("r", public), ("s", b"s" * 32)):
        with pytest.raises(TokenRefused):
            heard(by_hand({"alg": "HS256", "kid": kid}, secret), keys)


def test_a_key_that_the_token_brings_or_names_is_not_looked_at() -> None:
    own = jwk("EC", "k", 1)
    for header in (
        {"jwk": own}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/c"}, {"x5c": ["AA=="]},
    ):  # fmt: skip
        with pytest.raises(TokenRefused, match="signature"):
            heard(signed(number=1, header=header))
        assert heard(signed(header=header)).name == "robot"
        with pytest.raises(UnknownSigningKey):
            heard(signed(kid="mine", number=1, header=header))


def test_a_critical_extension_is_refused() -> None:
    with pytest.raises(TokenRefused, match="malformed"):
        heard(signed(header={"crit": ["exp"], "exp": 1}))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"exp": time.time() - 31}, "ended"),
        ({"exp": None}, "no end"),
        ({"exp": "soon"}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"exp": 1e300}, "malformed"),
        ({"nbf": time.time() + DAY_S}, "not yet"),
        ({"iat": time.time() + DAY_S}, "not yet"),
        ({"iss": "https://other.example/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "elsewhere"}, "audience"),
        ({"aud": ["elsewhere"]}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": None}, "subject"),
        ({"sub": ""}, "subject"),
        ({"sub": "x" * 256}, "subject"),
        ({"sub": "a\0b"}, "subject"),
        ({"sub": "robot "}, "subject"),
        ({"sub": "a\nUser:admin"}, "subject"),
        ({"sub": "a\x1b[2J"}, "subject"),
        ({"sub": "nimda\u202e"}, "subject"),
    ],
)
def test_what_a_token_has_to_say(more: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=f"^{why}$"):
        heard(signed(**more))


def test_clocks_may_be_a_little_wrong_and_audiences_many() -> None:
    assert heard(signed(exp=time.time() - 20, iat=time.time() + 20, aud=["x", "other"])).name == "robot"
    assert heard(signed(client="me"), expected=TokenRequirements(sub_claim="client")).name == "me"


def test_a_token_that_is_believed_has_not_ended() -> None:
    """One that was let in at the last moment was over at once, and let in again at the next call."""
    speaker = heard(signed(exp=time.time() - 20))
    assert 5 < speaker.until_s - time.time() < 11


def test_a_signature_of_another_key_or_of_other_words_is_refused() -> None:
    token = signed()
    head, body, signature = token.split(".")
    other = b64(json.dumps(claims(sub="admin")).encode())
    for forged in (signed(number=1), f"{head}.{other}.{signature}", f"{head}.{body}.", f"{head}.{body}", token + "A"):
        with pytest.raises(TokenRefused):
            heard(forged)


def test_which_keys_are_of_use() -> None:
    weak = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True) | {"kid": "weak"}
    keys = parse_key_set(
        jwks(jwk("EC", "k"), weak, jwk("EC", "e", use="enc"), jwk("RSA", "p", alg="PS256"), {"kty": "RSA"})
    )
    assert set(keys.found) == {("ES256", "k"), ("PS256", "p")}
    assert keys.passed_over == 3
    with pytest.raises(UnknownSigningKey):
        heard(signed("RSA", "RS256", "p"), keys)
    for document in (b"", b"[]", b"{}", b'{"keys": 1}', jwks(), jwks(weak), b"[" * 100_000, jwks(*[{}] * 101)):
        with pytest.raises(ValueError):
            parse_key_set(document)


@given(st.text(max_size=200), st.binary(max_size=60), st.binary(max_size=60))
def test_any_text_is_unbelieved(text: str, header: bytes, body: bytes) -> None:
    tokens = (text, f"{b64(header)}.{b64(body)}.{b64(body)}", f"{b64(b'{' + header + b'}')}.{b64(body)}.AA")
    for token in tokens:
        with pytest.raises(TokenRefused):
            heard(token)


def test_deep_claims_are_unbelieved() -> None:
    deep = jwt.api_jws.PyJWS().encode(b"[" * 5_000, private_key("EC"), "ES256", {"kid": "k"})
    with pytest.raises(TokenRefused):
        heard(deep)
