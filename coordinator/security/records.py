"""The records of `__security`: JSON, so that an operator can read with `muster log dump` who may do what.

A key is a list: its kind, then what tells it from others of the kind. A value has a version, and fields that a later
version may add to.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.coordinator.security.acl.model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.facts import (
    AclKey,
    ApiToken,
    Change,
    Key,
    PasswordHash,
    QuotaKey,
    ScramCredential,
    SecretKey,
    TokenKey,
    TopicKey,
    TopicOwner,
    User,
    UserKey,
    Value,
)

VERSION: Final = 1
MOST_BYTES: Final = 64 << 10
"""Of one value; checked before it is written."""


class Unreadable(ValueError):
    """A record that this version cannot read. Whoever starts with it would not know who may do what."""


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value; a value of None takes the key away. Raises ValueError for one that is too large."""
    key = as_json(key_out(change.key))
    if change.value is None:
        return key, None
    value = as_json({"version": VERSION, **value_out(change.value)})
    if len(value) > MOST_BYTES:
        raise ValueError(f"{key.decode()} takes {len(value)} bytes; expected at most {MOST_BYTES}")
    return key, value


def decode(key: bytes, value: bytes | None) -> Change:
    """Raises Unreadable."""
    try:
        kind, *rest = json.loads(key)
        found, reader = KINDS[kind]
        made = found(rest)
        if value is None:
            return Change(made, None)
        fields = json.loads(value)
        if fields["version"] > VERSION:
            raise Unreadable(f"{key!r} is of version {fields['version']}; this node reads up to {VERSION}")
        return Change(made, reader(made, fields))
    except Unreadable:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Unreadable(f"{key!r}: {error!r}") from error


def key_out(key: Key) -> list[Any]:
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


def value_out(value: Value) -> dict[str, Any]:
    match value:
        case User():
            scram = {name: scram_out(each) for name, each in value.scram.items()}
            return {"scram": scram, **({"password": hash_out(value.password)} if value.password else {})}
        case ApiToken():
            return {
                "name": value.name,
                "principal": value.principal,
                "hash": text(value.hash),
                "made_ms": value.made_ms,
                "until_ms": value.until_ms,
            }
        case Acl():
            return {}
        case TopicOwner():
            return {"user": value.user, "id": text(value.id)}
        case bytes():
            return {"secret": text(value)}
        case _:
            return {"quotas": dict(value)}


def scram_out(one: ScramCredential) -> dict[str, Any]:
    return {
        "salt": text(one.salt),
        "iterations": one.iterations,
        "stored_key": text(one.stored_key),
        "server_key": text(one.server_key),
    }


def hash_out(one: PasswordHash) -> dict[str, Any]:
    return {"salt": text(one.salt), "hash": text(one.hash), "n": one.n, "r": one.r, "p": one.p}


def user_in(key: Any, fields: Mapping[str, Any]) -> User:
    scram = {
        name: ScramCredential(raw(one["salt"]), int(one["iterations"]), raw(one["stored_key"]), raw(one["server_key"]))
        for name, one in fields["scram"].items()
    }
    found = fields.get("password")
    password = None
    if found is not None:
        password = PasswordHash(
            raw(found["salt"]), raw(found["hash"]), int(found["n"]), int(found["r"]), int(found["p"])
        )
    return User(key.name, scram, password)


def token_in(key: Any, fields: Mapping[str, Any]) -> ApiToken:
    return ApiToken(
        key.id,
        str(fields["name"]),
        str(fields["principal"]),
        raw(fields["hash"]),
        int(fields["made_ms"]),
        int(fields["until_ms"]),
    )


def acl_in(key: Any, fields: Mapping[str, Any]) -> Acl:
    acl: Acl = key.acl
    return acl


def quotas_in(key: Any, fields: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in fields["quotas"].items()}


def acl_key(rest: list[Any]) -> AclKey:
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


def quota_key(rest: list[Any]) -> QuotaKey:
    return QuotaKey(tuple((str(kind), None if name is None else str(name)) for kind, name in rest))


KINDS: Final[Mapping[str, tuple[Callable[[list[Any]], Any], Callable[[Any, Mapping[str, Any]], Value]]]] = {
    "user": (lambda rest: UserKey(str(rest[0])), user_in),
    "token": (lambda rest: TokenKey(str(rest[0])), token_in),
    "acl": (acl_key, acl_in),
    "quota": (quota_key, quotas_in),
    "topic": (
        lambda rest: TopicKey(str(rest[0])),
        lambda key, fields: TopicOwner(str(fields["user"]), raw(fields["id"])),
    ),
    "secret": (lambda rest: SecretKey(str(rest[0])), lambda key, fields: raw(fields["secret"])),
}


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def text(data: bytes) -> str:
    return b64encode(data).decode()


def raw(data: str) -> bytes:
    return b64decode(data, validate=True)
