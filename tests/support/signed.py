"""Keys and signed tokens, made in a test."""

import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "muster"
ISSUER = "https://idp.example/"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """`kind`: RSA, EC or OKP; another number is another key."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case "OKP":
            return ed25519.Ed25519PrivateKey.generate()
    raise LookupError(kind)


ALGORITHMS: dict[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}


def jwk(kind: str, kid: str, number: int = 0, **more: str) -> dict[str, Any]:
    """The public half."""
    made: dict[str, Any] = ALGORITHMS[kind].to_jwk(private_key(kind, number).public_key(), as_dict=True)
    return {name: value for name, value in made.items() if name != "key_ops"} | {"kid": kid, **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(**more: Any) -> dict[str, Any]:
    now = time.time()
    return {"sub": "robot", "aud": AUDIENCE, "iss": ISSUER, "iat": now - 1, "exp": now + 60} | more


def signed(
    kind: str = "EC", algorithm: str = "ES256", kid: str | None = "k", number: int = 0, *,
    header: dict[str, Any] | None = None, **more: Any,
) -> str:  # fmt: skip
    headers = ({} if kid is None else {"kid": kid}) | (header or {})
    kept = {name: value for name, value in claims(**more).items() if value is not None}
    return jwt.encode(kept, private_key(kind, number), algorithm, headers)
