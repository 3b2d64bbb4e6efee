"""Which groups are Muster's, and requests that name Muster's and Kafka's: split, and their answers joined (KB-X2).
Pure.

A group is Muster's by its name (`engine.kafka.groups`, `.groups.except`); the group of Muster's own nodes never is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.core.model.rights import compile_pattern
from muster.coordinator.kafka.codec.codec import decode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer
from muster.coordinator.kafka_backend.proxy.broker_addresses import ProxyAddresses

# Which groups are Muster's
# -------------------------

MOST_REMEMBERED: Final = 100_000


def groups_by_name(groups: str, but: str, cluster: str) -> Callable[[str], bool]:
    """groups, but: `engine.kafka.groups` and `.groups.except`, over the whole group id; an empty exception is none.
    cluster: `engine.kafka.cluster`. Raises ValueError.

    >>> ours = groups_by_name("shop-.*", "shop-old-.*", "muster")
    >>> [name for name in ("shop-1", "shop-old-1", "my-shop-1", "muster.nodes") if ours(name)]
    ['shop-1']
    """
    wanted, unwanted = compile_pattern(groups), compile_pattern(but) if but else None
    nodes = f"{cluster}.nodes"
    known: dict[str, bool] = {}

    def ours(group: str) -> bool:
        found = known.get(group)
        if found is None:
            found = group != nodes and wanted.fullmatch(group) is not None
            found = found and (unwanted is None or unwanted.fullmatch(group) is None)
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            known[group] = found
        return found

    return ours


# Requests that name both kinds
# -----------------------------

GROUP_KEYS: Final = 0
BATCHED_COORDINATORS: Final = 4
BATCHED_OFFSETS: Final = 8
BROKER, GROUP = 4, 32
"""Types of resources that have settings."""

Ours = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class SplittableRequest:
    """One API. entries: the request's list; rows: the answer's. Both are told apart, and put in order, by keys."""

    entries: str
    rows: str
    entry_key: Callable[[Any], Any]
    row_key: Callable[[Any], Any]
    mine: Callable[[Any, Any, Ours, ProxyAddresses], bool]
    """Of a request and one of its entries."""
    first: int = 0
    """The first version that names several; those before it name one group, in `group_id` or `key`."""


def by_group(request: Any, entry: Any, ours: Ours, places: ProxyAddresses) -> bool:
    return ours(entry if isinstance(entry, str) else entry.group_id)


def by_key(request: Any, entry: Any, ours: Ours, places: ProxyAddresses) -> bool:
    return request.key_type == GROUP_KEYS and ours(entry)


def by_resource(request: Any, entry: Any, ours: Ours, places: ProxyAddresses) -> bool:
    if entry.resource_type == BROKER:
        return places.is_node(entry.resource_name)
    return entry.resource_type == GROUP and ours(entry.resource_name)


def itself(entry: Any) -> Any:
    return entry


def group_id(entry: Any) -> Any:
    return entry.group_id


def resource(entry: Any) -> Any:
    return entry.resource_type, entry.resource_name


LISTS: Final = "ListConfigResources"
"""It names nothing, and asks for what both have."""
KINDS: Final = {
    "FindCoordinator": SplittableRequest(
        "coordinator_keys", "coordinators", itself, lambda row: row.key, by_key, BATCHED_COORDINATORS
    ),
    "OffsetFetch": SplittableRequest("groups", "groups", group_id, group_id, by_group, BATCHED_OFFSETS),
    "DescribeGroups": SplittableRequest("groups", "groups", itself, group_id, by_group),
    "DeleteGroups": SplittableRequest("groups_names", "results", itself, group_id, by_group),
    "ConsumerGroupDescribe": SplittableRequest("group_ids", "groups", itself, group_id, by_group),
    "DescribeConfigs": SplittableRequest("resources", "results", resource, resource, by_resource),
    "AlterConfigs": SplittableRequest("resources", "responses", resource, resource, by_resource),
    "IncrementalAlterConfigs": SplittableRequest("resources", "responses", resource, resource, by_resource),
}


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """mine, theirs: the request's two parts; None where it has nothing of the kind."""

    mine: Any
    theirs: Any


def split_request(name: str, version: int, request: Any, ours: Ours, places: ProxyAddresses) -> SplitRequest:
    """A request that names nothing is the upstream's."""
    if name == LISTS:
        return SplitRequest(of_groups(version, request), request)
    kind = KINDS[name]
    if version < kind.first:
        one = request.key if name == "FindCoordinator" else request.group_id
        is_mine = ours(one) and getattr(request, "key_type", GROUP_KEYS) == GROUP_KEYS
        return SplitRequest(request, None) if is_mine else SplitRequest(None, request)
    entries = getattr(request, kind.entries)
    mine = [entry for entry in entries if kind.mine(request, entry, ours, places)]
    if not mine:
        return SplitRequest(None, request)
    if len(mine) == len(entries):
        return SplitRequest(request, None)
    keys = {kind.entry_key(entry) for entry in mine}
    theirs = [entry for entry in entries if kind.entry_key(entry) not in keys]
    return SplitRequest(with_entries(request, kind.entries, mine), with_entries(request, kind.entries, theirs))


def of_groups(version: int, request: Any) -> Any:
    """What of it is about groups; None: nothing. Version 0 asks for what clients measure, and nothing else; an empty
    list is all types there are."""
    if version == 0 or (request.resource_types and GROUP not in request.resource_types):
        return None
    return with_entries(request, "resource_types", [GROUP])


def with_entries(request: Any, field: str, entries: list[Any]) -> Any:
    made = type(request)
    fields = {name: getattr(request, name) for name in made._defaults}
    return made(**{**fields, field: entries})


def join_answers(name: str, version: int, request: Any, mine: Any, theirs: Any) -> Any:
    """The answer to the whole request, in its order. A code for the whole answer is told if either part has one."""
    if isinstance(mine, EncodedAnswer):
        mine = decode(f"{name}Response", version, b"".join(mine.body))[0]
    if name == LISTS:
        return join_lists(mine, theirs)
    kind = KINDS[name]
    rows = {kind.row_key(row): row for answer in (theirs, mine) for row in getattr(answer, kind.rows)}
    order = dict.fromkeys(kind.entry_key(entry) for entry in getattr(request, kind.entries))
    answer = struct(f"{name}Response")(throttle_time_ms=theirs.throttle_time_ms)
    if hasattr(answer, "error_code"):
        answer.error_code = theirs.error_code or mine.error_code
    setattr(answer, kind.rows, [rows[key] for key in order if key in rows])
    return answer


def join_lists(mine: Any, theirs: Any) -> Any:
    """Of what has settings. A part is not the whole: a code of either is that of all."""
    code = theirs.error_code or mine.error_code
    rows = [] if code else [*theirs.config_resources, *mine.config_resources]
    return struct(f"{LISTS}Response")(throttle_time_ms=theirs.throttle_time_ms, error_code=code, config_resources=rows)
