"""OAUTHBEARER on the server's side (RFC 7628), and the signed tokens (JWT, RFC 7519) that clients present by it.

A token names a user if one of the configured keys has signed it and it is meant for this service. Keys come from one
set (JWKS, RFC 7517) and from nowhere else: a token's own hints at its key are ignored. The key, not the token,
decides which algorithms may be used with it. The JWT library is imported on use.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from muster.coordinator.security.login import (
    MOST_KEYS,
    MOST_TOKEN_BYTES,
    MOST_USER_NAME_CHARS,
    LoginFailed,
    LoginStep,
    LoginWork,
    SaslChallenge,
    SaslSuccess,
    decode_text,
    unescape_saslname,
)

# Signed tokens (JWT, RFC 7519)
# -----------------------------

RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
EDWARDS: Final = ("Ed25519", "Ed448")
LEAST_RSA_BITS: Final = 2_048
UNKNOWN_KEY: Final = "key"


class TokenRefused(ValueError):
    """The text is a word for the audit."""


class UnknownSigningKey(TokenRefused):
    """No key of the set fits: a newer one may have it."""


@dataclass(frozen=True, slots=True)
class TokenRequirements:
    """What a token has to say. Empty: anything."""

    issuer: str = ""
    audiences: frozenset[str] = frozenset()
    sub_claim: str = "sub"
    skew_s: float = 30.0


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """Whom a token speaks of; `until_s` by the wall clock: with what clocks may be wrong by."""

    name: str
    until_s: float


@dataclass(frozen=True, slots=True)
class SigningKeySet:
    """A set of keys: by algorithm and id, prepared; `passed_over` counts those that are of no use here."""

    found: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    passed_over: int = 0

    def of(self, algorithm: str, kid: str | None) -> Any:
        """Raises UnknownSigningKey. A token without an id is believed where only one key can be meant."""
        if kid is not None:
            if (key := self.found.get((algorithm, kid))) is None:
                raise UnknownSigningKey(UNKNOWN_KEY)
            return key
        fitting = [key for (each, _), key in self.found.items() if each == algorithm]
        if len(fitting) != 1:
            raise UnknownSigningKey(UNKNOWN_KEY)
        return fitting[0]


def parse_key_set(document: bytes) -> SigningKeySet:
    """The public keys of a JWKS. Raises ValueError for what is none, or has none that can be used."""
    from jwt import PyJWK, PyJWTError

    try:
        listed = json.loads(document)["keys"]
        assert isinstance(listed, list)
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError):
        raise ValueError('it is not a set of keys: expected JSON with "keys", a list (JWKS, RFC 7517)') from None
    if len(listed) > MOST_KEYS:
        raise ValueError(f"it has {len(listed)} keys; expected at most {MOST_KEYS}")
    found: dict[tuple[str, str], Any] = {}
    passed_over = 0
    for number, jwk in enumerate(listed):
        usable = key_algorithms(jwk) if isinstance(jwk, dict) else ()
        public = {name: value for name, value in jwk.items() if name not in ("d", "p", "q")} if usable else {}
        try:
            made = {name: PyJWK(public, name) for name in usable}
        except (PyJWTError, ValueError, TypeError, KeyError):
            made = {}
        if not made or (jwk["kty"] == "RSA" and next(iter(made.values())).key.key_size < LEAST_RSA_BITS):
            passed_over += 1
            continue
        found |= {(name, str(jwk.get("kid", f"key {number}"))): key for name, key in made.items()}
    if not found:
        raise ValueError("it has no public key for RS*, PS*, ES* or EdDSA (RSA from 2048 bits)")
    return SigningKeySet(found, passed_over)


def key_algorithms(jwk: Mapping[str, Any]) -> Sequence[str]:
    """What a key may have signed with; nothing for a shared secret, or a key for something else."""
    if jwk.get("use", "sig") != "sig":
        return ()
    match jwk.get("kty"):
        case "RSA":
            fitting: Sequence[str] = RSA
        case "EC":
            fitting = [CURVES[jwk["crv"]]] if jwk.get("crv") in CURVES else ()
        case "OKP":
            fitting = ("EdDSA",) if jwk.get("crv") in EDWARDS else ()
        case _:
            return ()
    return [each for each in fitting if jwk.get("alg", each) == each]


def verify_token(token: str, keys: SigningKeySet, expected: TokenRequirements, now_s: float) -> TokenSubject:
    """Whom the token speaks of. Raises TokenRefused. Takes some 100 us for the signature.

    `now_s`: by the wall clock.
    """
    from jwt.api_jws import PyJWS

    if len(token) > MOST_TOKEN_BYTES or not token.isascii():
        raise TokenRefused("malformed")
    jws = PyJWS()
    try:
        header = jws.get_unverified_header(token)
        algorithm, kid = header["alg"], header.get("kid")
        unfit = not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)) or "crit" in header
    except Exception:  # Whatever the library trips over in a stranger's bytes, they are no token.
        raise TokenRefused("malformed") from None
    if unfit:
        raise TokenRefused("malformed")
    key = keys.of(algorithm, kid)
    try:
        claims = json.loads(jws.decode(token, key, [algorithm]))
    except Exception:
        raise TokenRefused("signature") from None
    if not isinstance(claims, dict):
        raise TokenRefused("malformed")
    return verify_claims(claims, expected, now_s)


def verify_claims(claims: Mapping[str, Any], expected: TokenRequirements, now_s: float) -> TokenSubject:
    """Of the claims of a token that is ours. Raises TokenRefused."""
    until_s = read_time_claim(claims, "exp")
    if until_s is None:
        raise TokenRefused("no end")
    until_s += expected.skew_s
    if until_s <= now_s:
        raise TokenRefused("ended")
    for claim in ("nbf", "iat"):
        since_s = read_time_claim(claims, claim)
        if since_s is not None and since_s - expected.skew_s > now_s:
            raise TokenRefused("not yet")
    if expected.issuer and claims.get("iss") != expected.issuer:
        raise TokenRefused("issuer")
    audience = claims.get("aud", ())
    meant = {audience} if isinstance(audience, str) else {each for each in as_list(audience) if isinstance(each, str)}
    if expected.audiences and not meant & expected.audiences:
        raise TokenRefused("audience")
    name = claims.get(expected.sub_claim)
    if not isinstance(name, str) or not name or name != name.strip():
        raise TokenRefused("subject")
    if len(name) > MOST_USER_NAME_CHARS or not name.isprintable():
        raise TokenRefused("subject")
    return TokenSubject(name, until_s)


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def read_time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e12 or not isfinite(value):
        raise TokenRefused("malformed")
    return float(value)


# The SASL mechanism (RFC 7628)
# -----------------------------

PAIR: Final = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]*)")
REFUSAL: Final = json.dumps({"status": "invalid_token"}).encode()
"""What the client is told (RFC 7628, 3.2.2); it answers with one byte, and hears then that it has failed."""


class OauthBearerServer:
    """One conversation. `verify` says whom a token speaks of; raises TokenRefused. It is called off the loop."""

    def __init__(self, verify: Callable[[str], TokenSubject]) -> None:
        self._verify = verify
        self._refused = ""

    def evaluate(self, data: bytes) -> LoginStep:
        """See `SaslMechanism`."""
        if self._refused:
            raise LoginFailed(self._refused)
        token, authzid = parse_bearer_message(decode_text(data, MOST_TOKEN_BYTES))

        def check() -> SaslSuccess:
            try:
                speaker = self._verify(token)
            except TokenRefused as error:
                raise LoginFailed(str(error)) from None
            if authzid and authzid != speaker.name:
                raise LoginFailed("another's name")
            return SaslSuccess(speaker.name, until_s=speaker.until_s)

        return LoginWork(check)

    def refused(self, why: str) -> SaslChallenge:
        """After its Work has failed: what the client is told first."""
        self._refused = why
        return SaslChallenge(REFUSAL)


def parse_bearer_message(text: str) -> tuple[str, str]:
    """The token, and the name that is asked for, of the client's message. Raises LoginFailed.

    >>> parse_bearer_message("n,a=me,\\x01auth=Bearer a.b.c\\x01host=x\\x01\\x01")
    ('a.b.c', 'me')
    """
    header, *pairs = text.split("\x01")
    flag, _, rest = header.partition(",")
    authzid, comma, left = rest.partition(",")
    if flag not in ("n", "y") or not comma or left or len(pairs) < 3 or pairs[-1] or pairs[-2]:
        raise LoginFailed("malformed")
    if authzid and authzid[:2] != "a=":
        raise LoginFailed("malformed")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = PAIR.fullmatch(pair)
        if match is None or match[1] in found:
            raise LoginFailed("malformed")
        found[match[1]] = match[2]
    kind, _, token = found.get("auth", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise LoginFailed("malformed")
    return token.strip(), unescape_saslname(authzid[2:]) if authzid else ""
