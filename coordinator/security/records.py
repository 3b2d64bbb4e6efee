"""The records of `__security` as JSON, so that `muster log dump` shows an operator who may do what.

A key is a list: its kind, then what distinguishes it from others of the kind. A value has a version, and fields that a
later version may add to.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.state import (
    AclKey,
    ApiToken,
    PasswordHash,
    QuotaKey,
    ScramCredential,
    SecretKey,
    SecurityKey,
    SecurityRecord,
    SecurityValue,
    TokenKey,
    TopicKey,
    TopicOwner,
    User,
    UserKey,
)

VERSION: Final = 1
MOST_BYTES: Final = 64 << 10
"""Of one value; checked before it is written."""


class UnreadableSecurityRecord(ValueError):
    """A record that this version cannot read. Whoever starts with it would not know who may do what."""


def encode_security_record(change: SecurityRecord) -> tuple[bytes, bytes | None]:
    """Key and value; a value of None takes the key away. Raises ValueError for one that is too large."""
    key = as_json(encode_key(change.key))
    if change.value is None:
        return key, None
    value = as_json({"version": VERSION, **encode_value(change.value)})
    if len(value) > MOST_BYTES:
        raise ValueError(f"{key.decode()} takes {len(value)} bytes; expected at most {MOST_BYTES}")
    return key, value


def decode_security_record(key: bytes, value: bytes | None) -> SecurityRecord:
    """Raises Unreadable."""
    try:
        kind, *rest = json.loads(key)
        found, reader = KINDS[kind]
        made = found(rest)
        if value is None:
            return SecurityRecord(made, None)
        fields = json.loads(value)
        if fields["version"] > VERSION:
            raise UnreadableSecurityRecord(
                f"{key!r} is of version {fields['version']}; this node reads up to {VERSION}"
            )
        return SecurityRecord(made, reader(made, fields))
    except UnreadableSecurityRecord:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnreadableSecurityRecord(f"{key!r}: {error!r}") from error


def encode_key(key: SecurityKey) -> list[Any]:
    match key:
        case UserKey(name):
            return ["user", name]
        case TokenKey(id):
            return ["token", id]
        case AclKey(acl):
            return ["acl", *(str(each.name) if hasattr(each, "name") else each for each in acl)]
        case SecretKey(name):
            return ["secret", name]
        case TopicKey(name):
            return ["topic", name]
        case QuotaKey(entity):
            return ["quota", *map(list, entity)]


def encode_value(value: SecurityValue) -> dict[str, Any]:
    match value:
        case User():
            scram = {name: encode_scram(each) for name, each in value.scram.items()}
            return {"scram": scram, **({"password": encode_password_hash(value.password)} if value.password else {})}
        case ApiToken():
            return {
                "name": value.name,
                "principal": value.principal,
                "hash": to_base64(value.hash),
                "made_ms": value.made_ms,
                "until_ms": value.until_ms,
            }
        case Acl():
            return {}
        case TopicOwner():
            return {"user": value.user, "id": to_base64(value.id)}
        case bytes():
            return {"secret": to_base64(value)}
        case _:
            return {"quotas": dict(value)}


def encode_scram(one: ScramCredential) -> dict[str, Any]:
    return {
        "salt": to_base64(one.salt),
        "iterations": one.iterations,
        "stored_key": to_base64(one.stored_key),
        "server_key": to_base64(one.server_key),
    }


def encode_password_hash(one: PasswordHash) -> dict[str, Any]:
    return {"salt": to_base64(one.salt), "hash": to_base64(one.hash), "n": one.n, "r": one.r, "p": one.p}


def decode_user(key: Any, fields: Mapping[str, Any]) -> User:
    scram = {
        name: ScramCredential(
            from_base64(one["salt"]),
            int(one["iterations"]),
            from_base64(one["stored_key"]),
            from_base64(one["server_key"]),
        )
        for name, one in fields["scram"].items()
    }
    found = fields.get("password")
    password = None
    if found is not None:
        password = PasswordHash(
            from_base64(found["salt"]), from_base64(found["hash"]), int(found["n"]), int(found["r"]), int(found["p"])
        )
    return User(key.name, scram, password)


def decode_token(key: Any, fields: Mapping[str, Any]) -> ApiToken:
    return ApiToken(
        key.id,
        str(fields["name"]),
        str(fields["principal"]),
        from_base64(fields["hash"]),
        int(fields["made_ms"]),
        int(fields["until_ms"]),
    )


def decode_acl(key: Any, fields: Mapping[str, Any]) -> Acl:
    acl: Acl = key.acl
    return acl


def decode_quotas(key: Any, fields: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in fields["quotas"].items()}


def decode_acl_key(rest: list[Any]) -> AclKey:
    kind, pattern, name, principal, host, operation, permission = rest
    return AclKey(
        Acl(
            ResourceType[kind],
            PatternType[pattern],
            str(name),
            str(principal),
            str(host),
            Operation[operation],
            Permission[permission],
        )
    )


def decode_quota_key(rest: list[Any]) -> QuotaKey:
    return QuotaKey(tuple((str(kind), None if name is None else str(name)) for kind, name in rest))


KINDS: Final[Mapping[str, tuple[Callable[[list[Any]], Any], Callable[[Any, Mapping[str, Any]], SecurityValue]]]] = {
    "user": (lambda rest: UserKey(str(rest[0])), decode_user),
    "token": (lambda rest: TokenKey(str(rest[0])), decode_token),
    "acl": (decode_acl_key, decode_acl),
    "quota": (decode_quota_key, decode_quotas),
    "topic": (
        lambda rest: TopicKey(str(rest[0])),
        lambda key, fields: TopicOwner(str(fields["user"]), from_base64(fields["id"])),
    ),
    "secret": (lambda rest: SecretKey(str(rest[0])), lambda key, fields: from_base64(fields["secret"])),
}


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def to_base64(data: bytes) -> str:
    return b64encode(data).decode()


def from_base64(data: str) -> bytes:
    return b64decode(data, validate=True)
