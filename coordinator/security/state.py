"""What `__security` holds, as data: users, API tokens, access control lists, quotas, topic owners; and their sum.

`SecurityState` is what all records add up to, and changes only through `apply`. No secret is kept in plain form.
`records.py` converts keys and values to and from bytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar, cast

from muster.coordinator.security.access_model import Acl

# Facts
# -----


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


# The sum of all records
# ----------------------

StoredKey = TypeVar("StoredKey")
StoredValue = TypeVar("StoredValue")


class SecurityState:
    """Changes only through `apply`."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.tokens: dict[str, ApiToken] = {}
        self.acls: set[Acl] = set()
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.secrets: dict[str, bytes] = {}
        self.topic_owners: dict[str, TopicOwner] = {}
        self.version = 0
        """Rises with each change, so that whoever keeps decisions knows them old. Of this process; not kept."""

    def value(self, key: SecurityKey) -> SecurityValue | None:
        """What a record of this key would say now."""
        match key:
            case UserKey(name):
                return self.users.get(name)
            case TokenKey(id):
                return self.tokens.get(id)
            case AclKey(acl):
                return acl if acl in self.acls else None
            case SecretKey(name):
                return self.secrets.get(name)
            case TopicKey(name):
                return self.topic_owners.get(name)
            case QuotaKey(entity):
                return self.quotas.get(entity)

    def known_keys(self) -> Iterator[SecurityKey]:
        """Of all there is."""
        yield from map(UserKey, self.users)
        yield from map(TokenKey, self.tokens)
        yield from map(AclKey, self.acls)
        yield from map(SecretKey, self.secrets)
        yield from map(TopicKey, self.topic_owners)
        yield from map(QuotaKey, self.quotas)

    def apply(self, changes: Iterable[SecurityRecord]) -> None:
        for key, value in changes:
            self.version += 1
            match key:
                case UserKey(name):
                    put_or_remove(self.users, name, cast(User | None, value))
                case TokenKey(id):
                    put_or_remove(self.tokens, id, cast(ApiToken | None, value))
                case AclKey(acl):
                    (self.acls.discard if value is None else self.acls.add)(acl)
                case SecretKey(name):
                    put_or_remove(self.secrets, name, cast(bytes | None, value))
                case TopicKey(name):
                    put_or_remove(self.topic_owners, name, cast(TopicOwner | None, value))
                case QuotaKey(entity):
                    put_or_remove(self.quotas, entity, cast(dict[str, float] | None, value))


def put_or_remove(table: dict[StoredKey, StoredValue], key: StoredKey, value: StoredValue | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def diff_states(before: SecurityState, after: SecurityState, *, only_come: bool = False) -> list[SecurityRecord]:
    """What makes the one of the other; or, of both together, what the other has."""
    gone = [SecurityRecord(key, None) for key in before.known_keys() if after.value(key) is None and not only_come]
    come = [
        SecurityRecord(key, value) for key in after.known_keys() if (value := after.value(key)) != before.value(key)
    ]
    return gone + come
