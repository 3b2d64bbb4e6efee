"""Which quotas exist, what may be set for whom, and which one applies to a request.

Kafka's quotas (KIP-546, KIP-599, KIP-612) and three of Muster's own: numbers of groups, members and topics. Precedence
is that of Kafka's ClientQuotaManager, validation that of ClientQuotaControlManager and QuotaConfig.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple

from muster.coordinator.security.state import QuotaEntity

# Names
# -----

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
GROUP_COUNT: Final = "group_count"
MEMBER_COUNT: Final = "member_count"
TOPIC_COUNT: Final = "topic_count"

COUNT_QUOTAS: Final = frozenset({GROUP_COUNT, MEMBER_COUNT, TOPIC_COUNT})
"""How much a principal may have at once. They go by user alone, and 0 is a limit as well."""

WHOLE_NUMBERS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}) | COUNT_QUOTAS
"""Those that are whole numbers; the others may have a fraction."""

CLIENT_QUOTAS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
USER_QUOTAS: Final = CLIENT_QUOTAS | COUNT_QUOTAS
IP_QUOTAS: Final = frozenset({CONNECTION_CREATION_RATE})

MEANINGS: Final = {
    PRODUCER_BYTE_RATE: "bytes per second that may be produced",
    CONSUMER_BYTE_RATE: "bytes per second that may be fetched",
    REQUEST_PERCENTAGE: "percent of one processor's time that requests may take",
    CONTROLLER_MUTATION_RATE: "partitions per second that may be created or deleted",
    CONNECTION_CREATION_RATE: "connections per second from an address",
    GROUP_COUNT: "groups that the user may have members in",
    TOPIC_COUNT: "topics that the user may have made",
    MEMBER_COUNT: "members of groups that the user may have",
}


# Precedence
# ----------

MAX_NAME_CHARS = 1_024
"""Of a client's id that can have a quota; one that is longer counts as what it begins with."""

MAX_KEPT_LOOKUPS = 10_000
"""Answers that are kept: names of clients are theirs to choose."""

QuotaHolder = tuple[str | None, str | None]
"""A user and a client id, of which either may be left out."""


class AppliedQuota(NamedTuple):
    """A figure, and whose use counts against it: of a user's, all clients' together."""

    quota: float
    shared_by: QuotaHolder


class QuotaTable:
    """All that is set of one quota."""

    def __init__(self, name: str, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.name = name
        self._set: dict[QuotaEntity, float] = {
            entity: figures[name] for entity, figures in quotas.items() if name in figures
        }
        self._known: dict[tuple[str, str], AppliedQuota | None] = {}

    def __bool__(self) -> bool:
        return bool(self._set)

    def of(self, user: str, client: str) -> AppliedQuota | None:
        """None: there is none."""
        key = (user, client if len(client) <= MAX_NAME_CHARS else client[:MAX_NAME_CHARS])
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= MAX_KEPT_LOOKUPS:
                self._known.clear()
            found = self._known[key] = self._looked_up(*key)
            return found

    def of_address(self, ip: str) -> float | None:
        own = self._set.get(((IP, ip),))
        return own if own is not None else self._set.get(((IP, None),))

    def _looked_up(self, user: str, client: str) -> AppliedQuota | None:
        both = ((CLIENT_ID, client), (USER, user))
        for entity, shared_by in (
            (both, (user, client)),
            (((CLIENT_ID, None), (USER, user)), (user, client)),
            (((USER, user),), (user, None)),
            (((CLIENT_ID, client), (USER, None)), (user, client)),
            (((CLIENT_ID, None), (USER, None)), (user, client)),
            (((USER, None),), (user, None)),
            (((CLIENT_ID, client),), (None, client)),
            (((CLIENT_ID, None),), (None, client)),
        ):
            quota = self._set.get(entity)
            if quota is not None:
                return AppliedQuota(quota, shared_by)
        return None


# Validation and filters
# ----------------------

MAX_LONG = 2**63 - 1


class InvalidQuota(ValueError):
    """A change that makes no sense: INVALID_REQUEST, with this sentence."""


def check_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Whose quota it is, as it is kept. None for a name: the default of its type. Raises InvalidQuota.

    >>> check_entity([("user", "alice"), ("client-id", None)])
    (('client-id', None), ('user', 'alice'))
    >>> check_entity([("ip", "0:0:0:0:0:0:0:1")])  # as connections' addresses are written
    (('ip', '::1'),)
    """
    if not parts:
        raise InvalidQuota("the entity is empty; expected a user, a client-id, both, or an ip")
    kinds = [kind for kind, _ in parts]
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidQuota(f"entity type {kind!r} is not known; expected one of {', '.join(ENTITY_TYPES)}")
        if kinds.count(kind) > 1:
            raise InvalidQuota(f"the entity has two of type {kind}; expected each type once")
        if name is not None and not 0 < len(name) <= MAX_NAME_CHARS:
            raise InvalidQuota(f"a name of type {kind} has {len(name)} characters; expected 1 to {MAX_NAME_CHARS}")
        if kind == IP and name is not None and not is_address(name):
            raise InvalidQuota(f"{name!r} is no ip address")
    if IP in kinds and len(kinds) > 1:
        raise InvalidQuota("ip cannot be combined with other types; expected it alone")
    if IP in kinds:
        parts = [(kind, name if name is None else str(ipaddress.ip_address(name))) for kind, name in parts]
    return tuple(sorted(parts, key=lambda part: part[0]))


def check_value(entity: QuotaEntity, name: str, value: float) -> float:
    """A figure that may be set for this entity. Raises InvalidQuota."""
    known = quotas_of_entity(entity)
    if name not in known:
        raise InvalidQuota(
            f"{name!r} is not a quota of {describe_entity(entity)}; expected one of {', '.join(sorted(known))}"
        )
    if name in WHOLE_NUMBERS:
        least = 0 if name in COUNT_QUOTAS else 1
        if not isfinite(value) or value != int(value) or not least <= value <= MAX_LONG:
            raise InvalidQuota(f"{name} is {value:g}; expected a whole number, at least {least}")
    elif not isfinite(value) or value <= 0:
        raise InvalidQuota(f"{name} is {value:g}; expected a number above 0")
    return value


def quotas_of_entity(entity: QuotaEntity) -> frozenset[str]:
    kinds = {kind for kind, _ in entity}
    if IP in kinds:
        return IP_QUOTAS
    return USER_QUOTAS if kinds == {USER} else CLIENT_QUOTAS


def describe_entity(entity: QuotaEntity) -> str:
    """
    >>> describe_entity((("client-id", None), ("user", "alice")))
    'client-id <default>, user alice'
    """
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


EXACT, DEFAULT, ANY = 0, 1, 2


def filter_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """Entities that have each type asked for, by name, by default or at all; `strict`: and no other type.

    Raises InvalidQuota for a filter that makes no sense.
    """
    by_type: dict[str, tuple[int, str | None]] = {}
    for kind, how, name in wanted:
        if kind not in ENTITY_TYPES:
            raise InvalidQuota(f"entity type {kind!r} is not known; expected one of {', '.join(ENTITY_TYPES)}")
        if kind in by_type:
            raise InvalidQuota(f"the filter has two of type {kind}; expected each type once")
        if how not in (EXACT, DEFAULT, ANY):
            raise InvalidQuota(f"match type {how} is not known; expected 0 (exact), 1 (default) or 2 (any)")
        if (how == EXACT) != (name is not None):
            raise InvalidQuota(f"match type {how} of {kind} goes {'with' if how == EXACT else 'without'} a name")
        by_type[kind] = (how, name)
    if IP in by_type and len(by_type) > 1:
        raise InvalidQuota("ip cannot be combined with other types; expected it alone")
    found = []
    for entity, figures in quotas.items():
        names = dict(entity)
        if (strict and names.keys() != by_type.keys()) or not by_type.keys() <= names.keys():
            continue
        if all(how == ANY or names[kind] == name for kind, (how, name) in by_type.items()):
            found.append((entity, figures))
    return sorted(found, key=lambda one: [(kind, name is None, name or "") for kind, name in one[0]])
