"""What `__security` keeps, as data: users, API tokens, access control lists, quotas. No secret is among it as it is.

Bytes to and from these: `records.py`. What they add up to: `state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from muster.coordinator.security.model import Acl


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Of one mechanism (RFC 5802): enough to check a proof, not enough to make one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """scrypt of a password (RFC 7914)."""

    salt: bytes
    hash: bytes
    n: int
    r: int
    p: int


@dataclass(frozen=True, slots=True)
class User:
    """Who may log in by a password. `scram` by the mechanism's name."""

    name: str
    scram: Mapping[str, ScramCredential] = field(default_factory=dict)
    password: PasswordHash | None = None


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token is random, so that one round of SHA-256 keeps it."""

    id: str
    name: str
    principal: str
    hash: bytes
    made_ms: int
    until_ms: int
    """By the wall clock; 0: without an end."""


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of a type (`user`, `client-id`, `ip`) and a name, sorted; None stands for the default (KIP-546)."""


class UserKey(NamedTuple):
    name: str


class TokenKey(NamedTuple):
    id: str


class SecretKey(NamedTuple):
    """Of what the node made up once, and needs again after a restart."""

    name: str


class AclKey(NamedTuple):
    acl: Acl


class QuotaKey(NamedTuple):
    entity: QuotaEntity


class TopicKey(NamedTuple):
    name: str


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """Who made a topic, and its id: another one may get the name."""

    user: str
    id: bytes


SecurityKey: TypeAlias = UserKey | TokenKey | AclKey | QuotaKey | SecretKey | TopicKey
SecurityValue: TypeAlias = User | ApiToken | Acl | Mapping[str, float] | bytes | TopicOwner
"""Of a QuotaKey: figures by the quota's name, such as `producer_byte_rate`; of a SecretKey: bytes."""


class SecurityRecord(NamedTuple):
    """What a record says: this is so from now on; None: no longer."""

    key: SecurityKey
    value: SecurityValue | None
