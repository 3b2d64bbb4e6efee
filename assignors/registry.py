"""One word -> one assignor: alias, built-in name, entry point, or `package.module:Class`."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from muster.assignors.api import Assignor, AssignorError, RebalanceProtocol

ENTRY_POINT_GROUP = "muster.assignors"

BUILT_IN = {
    "range": "muster.assignors.builtin.range:RangeAssignor",
    "roundrobin": "muster.assignors.builtin.roundrobin:RoundRobinAssignor",
    "sticky": "muster.assignors.builtin.sticky:StickyAssignor",
    "cooperative-sticky": "muster.assignors.builtin.sticky:CooperativeStickyAssignor",
    "lag": "muster.assignors.builtin.lag:LagAssignor",
    "uniform": "muster.assignors.builtin.sticky:UniformAssignor",
    "lag-sticky": "muster.assignors.builtin.lag_sticky:LagStickyAssignor",
    "roundrobin-legacy": "muster.assignors.builtin.roundrobin:RoundRobinLegacyAssignor",
}

# What people have in their configuration files, lower case: Kafka's classes with and without their
# package, the spelling of librdkafka and kafkajs documents, and the lag-based assignor of the community.
_PACKAGES = (
    "org.apache.kafka.clients.consumer.",
    "org.apache.kafka.coordinator.group.assignor.",
    "com.github.grantneale.kafka.",
    "kafka.consumer.",
)
_ALIASES = {
    "rangeassignor": "range",
    "rangeassigner": "range",
    "roundrobinassignor": "roundrobin",
    "roundrobinassigner": "roundrobin",
    "round-robin": "roundrobin",
    "stickyassignor": "sticky",
    "stickyassigner": "sticky",
    "cooperativestickyassignor": "cooperative-sticky",
    "cooperativestickyassigner": "cooperative-sticky",
    "uniformassignor": "uniform",
    "lagassignor": "lag",
    "lagbasedpartitionassignor": "lag",
}


class UnknownAssignor(AssignorError):
    """A word that names no assignor; lists what is known here and the nearest match."""

    def __init__(self, word: str, reason: str = "is not known", remedy: str = "") -> None:
        names = known()
        if near := difflib.get_close_matches(word.lower(), names, n=1):
            remedy = f"did you mean {near[0]!r}?"
        remedy = remedy or "name one of these, install its plugin, or name a class as package.module:Class"
        super().__init__(word, f"{reason}; known here: {', '.join(names)}; {remedy}")


def known() -> list[str]:
    """Names that resolve here: the built-in ones, then those of installed plugins."""
    return list(BUILT_IN) + sorted(set(_plugins()) - set(BUILT_IN))


def aliases(name: str) -> tuple[str, ...]:
    """Other words for a built-in assignor; Kafka's package may stand before them."""
    return tuple(word for word, meant in _ALIASES.items() if meant == name)


def resolve(word: str) -> Assignor:
    """The assignor that `word` names; UnknownAssignor when there is none, AssignorError when it is broken."""
    word = word.strip()
    name = _canonical(word)
    if name in BUILT_IN:
        return _load(name, BUILT_IN[name])
    if word in (plugins := _plugins()):
        return _load(word, plugins[word].value)
    if ":" in word:
        return _load(word, word)
    raise UnknownAssignor(word)


def resolve_all(words: str | Iterable[str]) -> list[Assignor]:
    """Assignors of a comma-separated string or a list, in order, each once."""
    listed = words.split(",") if isinstance(words, str) else list(words)
    stripped = [word.strip() for word in listed if word.strip()]
    if not stripped:
        raise ValueError(f"an empty list of assignors was given ({words!r}); name one or more of: {', '.join(known())}")
    found: dict[str, Assignor] = {}
    for word in stripped:
        assignor = resolve(word)
        found.setdefault(assignor.name, assignor)
    return list(found.values())


def own_name(word: str) -> str:
    """The name of the built-in assignor that `word` means, whichever of its names it is; any other word as it is.

    Nothing is looked up or imported: clients may send any word.
    """
    name = _canonical(word.strip())
    return name if name in BUILT_IN else word


def _canonical(word: str) -> str:
    low = word.lower()
    for package in _PACKAGES:
        low = low.removeprefix(package)
    return _ALIASES.get(low, low)


def _plugins() -> dict[str, EntryPoint]:
    return _installed(tuple(sys.path), entry_points)


@lru_cache(maxsize=4)
def _installed(_path: tuple[str, ...], look: Callable[..., Iterable[EntryPoint]]) -> dict[str, EntryPoint]:
    """What is installed, read once for each search path: it takes 5 to 10 ms, and clients may send a node any word."""
    return {point.name: point for point in look(group=ENTRY_POINT_GROUP)}


def _load(word: str, target: str) -> Assignor:
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # The module is foreign code; whatever it raises is its author's to read.
        remedy = "install its package, or set PYTHONPATH to the directory that holds it"
        raise UnknownAssignor(word, f"cannot be imported ({type(error).__name__}: {error})", remedy) from error
    found = module
    for part in class_name.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if found is None:
        raise UnknownAssignor(word, f"names no class: {module_name!r} has no {class_name!r}", "check its spelling")
    try:
        assignor = found() if isinstance(found, type) else found
    except Exception as error:
        raise AssignorError(word, f"cannot be created without arguments ({error})") from error
    if not isinstance(assignor, Assignor) or not isinstance(assignor.protocol, RebalanceProtocol):
        raise UnknownAssignor(
            word,
            f"{target!r} is not an assignor: it needs a name, a protocol (RebalanceProtocol) and assign(snapshot)",
            "add what it lacks, or name one of these",
        )
    return assignor
