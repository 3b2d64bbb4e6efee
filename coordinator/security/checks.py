"""What may be set for whom. Facts of Kafka: ClientQuotaControlManager, QuotaConfig."""

import ipaddress
from collections.abc import Mapping, Sequence
from math import isfinite

from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.names import (
    CLIENT_QUOTAS,
    COUNT_QUOTAS,
    ENTITY_TYPES,
    IP,
    IP_QUOTAS,
    USER,
    USER_QUOTAS,
    WHOLE_NUMBERS,
)
from muster.coordinator.security.table import MAX_NAME_CHARS

MAX_LONG = 2**63 - 1


class InvalidQuota(ValueError):
    """A change that makes no sense: INVALID_REQUEST, with this sentence."""


def check_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Whose quota it is, as it is kept. None for a name: the default of its type. Raises BadQuota.

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
        raise InvalidQuota("ip goes with no other type; expected it alone")
    if IP in kinds:
        parts = [(kind, name if name is None else str(ipaddress.ip_address(name))) for kind, name in parts]
    return tuple(sorted(parts, key=lambda part: part[0]))


def check_value(entity: QuotaEntity, name: str, value: float) -> float:
    """A figure that may be set for this entity. Raises BadQuota."""
    known = quotas_of_entity(entity)
    if name not in known:
        raise InvalidQuota(
            f"{name!r} is no quota of {describe_entity(entity)}; expected one of {', '.join(sorted(known))}"
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

    Raises BadQuota for a filter that makes no sense.
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
        raise InvalidQuota("ip goes with no other type; expected it alone")
    found = []
    for entity, figures in quotas.items():
        names = dict(entity)
        if (strict and names.keys() != by_type.keys()) or not by_type.keys() <= names.keys():
            continue
        if all(how == ANY or names[kind] == name for kind, (how, name) in by_type.items()):
            found.append((entity, figures))
    return sorted(found, key=lambda one: [(kind, name is None, name or "") for kind, name in one[0]])
