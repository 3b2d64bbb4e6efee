"""The table of rights: what each request needs, and what becomes of who lacks it."""

from collections.abc import Mapping

from docs.tools.tables import code, table
from muster.coordinator.security.rights import (
    ANY_TOPIC,
    API_RIGHTS,
    OF_ANSWER,
    REFUSALS,
    RPC_RIGHTS,
    RequiredRight,
    RequiredRights,
    WithoutRight,
)


def kafka_rights() -> str:
    """Of Kafka's APIs."""
    return drawn("API", API_RIGHTS)


def rpc_rights() -> str:
    """Of gRPC's methods."""
    return drawn("method", {name.rpartition(".")[2]: rights for name, rights in RPC_RIGHTS.items()})


def drawn(what: str, rights: Mapping[str, RequiredRights]) -> str:
    rows = [
        [code(name) if first else "", *cells]
        for name, needed in rights.items()
        for first, cells in ((not at, cells) for at, cells in enumerate(rows_of(needed)))
    ]
    return table([what, "right", "of", "who lacks it"], rows)


def rows_of(needed: RequiredRights) -> list[list[str]]:
    return [[words(right), whose(right), fate(right)] for right in needed] or [["none", "", ""]]


def words(right: RequiredRight) -> str:
    """
    >>> from muster.coordinator.security.rights import API_RIGHTS
    >>> words(API_RIGHTS["ListGroups"][0])
    'DESCRIBE on GROUP, or DESCRIBE on CLUSTER'
    """
    said = f"{right.operation.name} on {right.resource_type.name}"
    if right.instead is None:
        return said
    other = words(right.instead)
    return f"{said}, or {other}{f' ({right.instead.of})' if right.instead.of == ANY_TOPIC else ''}"


def whose(right: RequiredRight) -> str:
    of = right.of.removeprefix(OF_ANSWER)
    told = of if " " in of and "," not in of else ", ".join(map(code, of.split(", "))) if of else ""
    if right.of_answer:
        told = f"the answer's {told}"
    return f"{told}{', if ' if told else 'if '}{right.when}" if right.when else told


def fate(right: RequiredRight) -> str:
    if right.lacking is WithoutRight.LEFT_OUT:
        return "it is left out"
    return f"{REFUSALS[right.resource_type]} {right.resource_type.name}_AUTHORIZATION_FAILED"
