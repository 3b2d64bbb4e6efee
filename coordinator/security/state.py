"""What the records of `__security` add up to."""

from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

from muster.coordinator.security.facts import (
    AclKey,
    ApiToken,
    QuotaEntity,
    QuotaKey,
    SecretKey,
    SecurityRecord,
    TokenKey,
    TopicKey,
    TopicOwner,
    User,
    UserKey,
)
from muster.coordinator.security.facts import (
    SecurityKey as AnyKey,
)
from muster.coordinator.security.facts import (
    SecurityValue as AnyValue,
)
from muster.coordinator.security.model import Acl

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

    def value(self, key: AnyKey) -> AnyValue | None:
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

    def known_keys(self) -> Iterator[AnyKey]:
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
