"""Lists: all groups, all topics, all rebalances, all nodes. Pure; what is asked of them comes as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.read_model.groups import GroupListing
from muster.coordinator.observability.views.cluster import age_words, node_row
from muster.coordinator.observability.views.formatting import host_and_port, size
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.observability.views.sentences import sentence
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.pages.group_view import (
    BUSY,
    HEALTH_CLASSES,
    SampledFigures,
    eta_words,
    trend_class,
    trend_words,
)
from muster.coordinator.web.pages.page_data import GroupHeadcount
from muster.coordinator.web.pages.pictures import draw_sparkline
from muster.coordinator.web.pages.position_view import written_to
from muster.coordinator.web.pages.rebalance_view import rebalance_address
from muster.long_work import sort_in_runs

PAGE: Final = 100
SORTS: Final = ("trouble", "name", "lag", "rebalance")
HTTP: Final = "HTTP"
PILLS: Final = {"live": "ok", "gone": "bad", "shutting-down": "warn", "drained": "warn"}


@dataclass(frozen=True, slots=True)
class GroupListQuery:
    """What of the groups is to be seen, and in which order."""

    text: str = ""
    state: str = ""
    with_lag: bool = False
    with_members: bool = False
    sort: str = "trouble"
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListedGroupView:
    group: str
    kind: str
    state: str
    state_class: str
    members: int
    lag: int | None
    spark: Markup
    trend: str
    trend_class: str
    eta: str
    health: str
    health_class: str
    reason: str
    last: str
    last_ms: int
    last_href: str


def select_groups(
    groups: Sequence[GroupListing],
    lags: Mapping[str, int],
    troubled: Mapping[str, int],
    latest: Mapping[str, int],
    wanted: GroupListQuery,
) -> list[GroupListing]:
    """Those that are wanted, in order; `troubled` has a number for each group, the highest for the worst.

    Groups without members come behind those that have some, unless the order is by name or time.
    """
    text = wanted.text.lower()
    found = [
        group
        for group in groups
        if text in group.group_id.lower()
        and wanted.state in ("", group.state)
        and (not wanted.with_lag or lags.get(group.group_id, 0) > 0)
        and (not wanted.with_members or group.has_members)
    ]

    def order(group: GroupListing) -> tuple[int, ...]:
        busy, idle = group.state in BUSY, not group.has_members
        return {
            "lag": (idle, -lags.get(group.group_id, -1)),
            "rebalance": (-latest.get(group.group_id, 0),),
            "trouble": (-troubled.get(group.group_id, 0), -busy, idle, -lags.get(group.group_id, -1) if idle else 0),
        }.get(wanted.sort, ())

    return sort_in_runs(found, lambda group: (*order(group), group.group_id))


def group_row(
    listed: GroupListing, group: GroupHeadcount | None, last: Rebalance | None, lag: int | None, figures: SampledFigures
) -> ListedGroupView:
    names = names_of([last] if last else [])
    state = group.state if group else listed.state
    return ListedGroupView(
        group=listed.group_id,
        kind=listed.group_type,
        state=state,
        state_class="busy" if state in BUSY else "ok" if state == "Stable" else "",
        members=group.members if group else 0,
        lag=lag,
        spark=draw_sparkline(figures.times, figures.lags),
        trend=trend_words(figures.trend),
        trend_class=trend_class(figures.trend),
        eta=eta_words(figures.eta_s, lag)
        if lag and figures.eta_s is not None and trend_class(figures.trend) == "down"
        else "",
        health=figures.health,
        health_class=HEALTH_CLASSES.get(figures.health, ""),
        reason=figures.reason,
        last=sentence(last, names) if last else "",
        last_ms=last.started_at_ms if last else 0,
        last_href=rebalance_address(last.group_id, last.number) if last else "",
    )


@dataclass(frozen=True, slots=True)
class ListedTopicView:
    topic: str
    partitions: int
    records: int
    size: str
    """Of its logs, with what is not compacted yet."""
    produced: float | None
    readers: tuple[str, ...]
    more_readers: int


MOST_READERS: Final = 6


def topic_rows(
    sizes: Mapping[str, int],
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    seen: Sequence[tuple[str, PartitionRates]],
    held: Mapping[tuple[str, int], int],
) -> list[ListedTopicView]:
    """`seen`: what the sampler saw of each group, for the readers and the rates."""
    records: dict[str, int] = dict.fromkeys(sizes, 0)
    for (topic, number), end in ends.items():
        records[topic] += max(0, end - starts.get((topic, number), end))
    log_bytes: dict[str, int] = dict.fromkeys(sizes, 0)
    for (topic, _), count in held.items():
        log_bytes[topic] += count
    readers: dict[str, list[str]] = {}
    for group, known in seen:
        for topic in {topic for topic, _ in known.places}:
            readers.setdefault(topic, []).append(group)
    produced: dict[str, float] = {}
    for (topic, _), rate in written_to(seen, sizes).items():
        produced[topic] = produced.get(topic, 0.0) + rate
    rows = []
    for topic, partitions in sorted(sizes.items()):
        who = sorted(readers.get(topic, ()))
        more = max(0, len(who) - MOST_READERS)
        told = size(log_bytes[topic])
        first = tuple(who[:MOST_READERS])
        rows.append(ListedTopicView(topic, partitions, records[topic], told, produced.get(topic), first, more))
    return rows


def make_cluster_view(answer: cluster_pb.DescribeClusterResponse, me: int, scheme: str) -> dict[str, Any]:
    """me: the node that shows the page. scheme: by which the page was asked for, and the others' are.

    old: how old it is, where that is worth a word. wanting: what partitions want for, in words, with the command that
    lists them.
    """
    wanting = [
        (f"{count:,} {what}", f"muster cluster partitions --{option}")
        for count, what, option in (
            (answer.offline_count, "with nobody who leads them", "offline"),
            (answer.under_min_isr_count, "below min.insync.replicas", "under-min-isr"),
            (answer.under_replicated_count, "with a copy behind or gone", "under-replicated"),
        )
        if count
    ]
    return {
        "cluster_id": answer.cluster_id,
        "old": age_words(answer),
        "partitions": f"{answer.partition_count:,}",
        "wanting": wanting,
        "nodes": [make_node_view(node, answer, me, scheme) for node in answer.nodes],
    }


def make_node_view(
    node: cluster_pb.ClusterNode, answer: cluster_pb.DescribeClusterResponse, me: int, scheme: str
) -> dict[str, Any]:
    """`page`: where that node's page is; "" where nobody knows, or it is this one."""
    row = node_row(node, answer)
    door = next((each for each in node.endpoints if each.listener == HTTP), None)
    address = "" if door is None else host_and_port(door.host, door.port)
    here = node.node_id == me
    return row | {
        "pill": PILLS.get(row["state"], ""),
        "here": here,
        "page": f"{scheme}://{address}/nodes" if address and not here else "",
        "http": address,
    }
