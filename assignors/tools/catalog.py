"""What `muster assignor list` and `describe_assignor` tell about the assignors known here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from muster.assignors import registry
from muster.assignors.api import AssignorError
from muster.assignors.options import options_of


@dataclass(frozen=True, slots=True)
class CatalogAssignor:
    """One assignor; `problem` says why an installed plugin cannot be used, and is empty otherwise."""

    name: str
    protocol: str
    source: str
    summary: str
    description: str
    options: dict[str, str]
    aliases: tuple[str, ...]
    problem: str = ""


def list_assignors() -> list[CatalogAssignor]:
    """Every assignor known here, broken plugins included: built-in ones first."""
    entries: list[CatalogAssignor] = []
    for word in registry.known():
        try:
            entries.append(describe_assignor(word))
        except AssignorError as error:
            entries.append(CatalogAssignor(word, "", "plugin", "", "", {}, (), str(error)))
    return entries


def describe_assignor(word: str) -> CatalogAssignor:
    """All there is to know about the assignor that `word` names; AssignorError when it cannot be had."""
    assignor = registry.resolve(word)
    text = inspect.getdoc(type(assignor)) or ""
    prose = text.split("\n>>> ")[0].strip()
    built_in = assignor.name in registry.BUILT_IN
    place = f"{type(assignor).__module__}:{type(assignor).__qualname__}"
    return CatalogAssignor(
        name=assignor.name,
        protocol=assignor.protocol.value,
        source="built in" if built_in else place,
        summary=" ".join(prose.split("\n\n")[0].split()),
        description=prose,
        options=options_of(assignor.name) if built_in else {},
        aliases=registry.aliases(assignor.name) if built_in else (),
    )
