"""Groups and topics as Prometheus reads them: its own client library parses what is asserted here."""

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.core.model.events import Loaded
from muster.coordinator.core.model.records import GroupDeleted
from muster.coordinator.core.model.types import (
    Cause,
    Outcome,
    PartitionMove,
    PhaseWait,
    RebalanceEntry,
    RebalancePhase,
    WaitEnd,
)
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.metrics.exposition import ExpositionFormat
from muster.coordinator.observability.metrics.instruments import ClusterFigures, Instruments, LedPartitionFigures
from muster.coordinator.observability.metrics.node_metrics import counted_families, encode_family, negotiate_format
from muster.coordinator.observability.metrics.scrape import ScrapeCounts, ScrapePage, Scraper, SeriesGranularity
from muster.coordinator.observability.metrics.series import RebalanceTotals
from muster.coordinator.observability.metrics.table import Level
from tests.support.series_source import NumbersOnly, commit, shard_with, store_group

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]

NASTY = 'a"b\\c\nd'


def steps_of(scraper: Scraper, page: ScrapePage, now_ms: int) -> Iterator[None]:
    yield from scraper.measure(page)
    scraper.fit(page)
    yield from scraper.write(page, now_ms)


class Scraped:
    """One node's answers, parsed."""

    def __init__(self, source: NumbersOnly, fineness: SeriesGranularity | None = None) -> None:
        self.rebalances = RebalanceTotals()
        self.fenced: dict[tuple[str, ErrorCode], int] = {}
        self.instruments = Instruments()
        self.scraper = Scraper(source, ScrapeCounts(self.instruments, self.rebalances, self.fenced), 7, fineness)

    def page(self, now_ms: int = 0, form: ExpositionFormat | None = None) -> ScrapePage:
        page = self.scraper.page(form or ExpositionFormat())
        for _ in steps_of(self.scraper, page, now_ms):
            pass
        return page

    def text(self, now_ms: int = 0, form: ExpositionFormat | None = None) -> str:
        return b"".join(self.page(now_ms, form).sheet.pieces()).decode()

    def read(self, now_ms: int = 0) -> Found:
        families = text_string_to_metric_families(self.text(now_ms))
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }


def of(found: Found, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def names(found: Iterable[tuple[str, frozenset[tuple[str, str]]]]) -> set[str]:
    return {name for name, _ in found}


def two_members() -> NumbersOnly:
    """Group g: a has t-0, t-1 and t-2, b has t-3; committed on 0, 1 and 3; t ends at 100 everywhere."""
    shard = shard_with({"t": 4})
    store_group(shard, "g", {"a": {"t": (0, 1, 2)}, "b": {"t": (3,)}})
    commit(shard, "g", {("t", 0): 90, ("t", 1): 100, ("t", 3): 70}, at_ms=1_000)
    shard.step(Loaded(), 0)
    return NumbersOnly([shard], {"t": 4})


def entry(number: int, cause: Cause = Cause.MEMBER_JOINED, **values: object) -> RebalanceEntry:
    plain = {
        "previous_generation": number - 1,
        "generation": number,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "culprit": "a",
        "culprit_client_id": "",
        "culprit_client_host": "",
        "detail": "",
        "client_reason": "",
        "outcome": Outcome.COMPLETED,
        "started_at_ms": 0,
        "ended_at_ms": 3_000,
        "phases": (RebalancePhase("join", 2_000), RebalancePhase("plan", 1_000)),
        "moves": (PartitionMove("t", 0, "", "a", -1, ""), PartitionMove("t", 1, "", "a", -1, "")),
    }
    return RebalanceEntry(number=number, cause=cause, **{**plain, **values})  # type: ignore[arg-type]


def test_lags_and_sums_leave_out_what_is_not_committed() -> None:
    found = Scraped(two_members()).read()
    share = {"consumergroup": "g", "topic": "t"}
    lags = [of(found, "kafka_consumergroup_lag", **share, partition=str(n)) for n in range(4)]
    offsets = [of(found, "kafka_consumergroup_current_offset", **share, partition=str(n)) for n in range(4)]
    assert (lags, offsets) == ([10, 0, -1, 30], [90, 100, -1, 70])
    assert of(found, "kafka_consumergroup_lag_sum", **share) == 40
    assert of(found, "kafka_consumergroup_current_offset_sum", **share) == 260
    assert of(found, "kafka_consumergroup_members", consumergroup="g") == 2


def test_a_lag_is_never_negative_and_an_unknown_end_makes_none() -> None:
    source = two_members()
    source.ended = {("t", 0): 80, ("t", 3): -1}
    found = Scraped(source).read()
    lags = [of(found, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition=str(n)) for n in range(4)]
    assert lags == [0, 0, -1, -1]
    assert of(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 0
    assert of(found, "kafka_topic_partition_current_offset", topic="t", partition="3") is None


def test_a_topic_s_partitions_are_as_kafka_exporter_tells_them() -> None:
    found = Scraped(two_members()).read()
    of_partition = {"topic": "t", "partition": "2"}
    expected = {"current_offset": 100, "oldest_offset": 0, "leader": 7, "leader_is_preferred": 1, "replicas": 1}
    expected |= {"in_sync_replica": 1, "under_replicated_partition": 0}
    told = {name: of(found, f"kafka_topic_partition_{name}", **of_partition) for name in expected}
    assert told == expected
    assert of(found, "kafka_topic_partitions", topic="t") == 4


class LedBySome:
    """A cluster in which this node leads the odd partitions of every topic."""

    def figures(self) -> ClusterFigures:
        return ClusterFigures()

    def led(self, topic: str, partitions: range) -> list[LedPartitionFigures | None]:
        return [LedPartitionFigures(number > 1, 3, 3 - number % 3) if number % 2 else None for number in partitions]


def test_of_a_cluster_each_partition_is_told_of_by_its_leader() -> None:
    scraped = Scraped(NumbersOnly([], {"t": 4}))
    scraped.scraper._cluster = LedBySome()
    found = scraped.read()
    told = {
        partition: [
            of(found, f"kafka_topic_partition_{name}", topic="t", partition=partition)
            for name in ("leader", "leader_is_preferred", "replicas", "in_sync_replica", "under_replicated_partition")
        ]
        for partition in "0123"
    }
    assert told == {"0": [None] * 5, "1": [7, 0, 3, 2, 1], "2": [None] * 5, "3": [7, 1, 3, 3, 0]}


def test_balance_by_count_and_by_lag() -> None:
    found = Scraped(two_members()).read()
    assert of(found, "muster_group_imbalance_ratio", group="g", by="count") == 1.5
    assert of(found, "muster_group_imbalance_ratio", group="g", by="lag") == 1.5
    assert of(found, "muster_group_unowned_partitions", group="g") == 0
    assert of(found, "muster_group_idle_members", group="g") == 0


def test_balance_by_the_rate_of_writing_where_that_is_known() -> None:
    source = two_members()
    unknown = np.full(4, np.nan)
    places = tuple(("t", partition) for partition in range(4))
    source.written["g"] = PartitionRates(
        places, np.array([1.0, 1.0, np.nan, 6.0]), unknown, unknown, np.zeros(4, np.int64)
    )
    assert of(Scraped(source).read(), "muster_group_imbalance_ratio", group="g", by="rate") == 1.5
    source.written["g"] = PartitionRates(places, unknown, unknown, unknown, np.zeros(4, np.int64))
    assert of(Scraped(source).read(), "muster_group_imbalance_ratio", group="g", by="rate") is None


def test_partitions_without_an_owner_and_members_without_a_partition() -> None:
    shard = shard_with({"t": 4})
    store_group(shard, "g", {"a": {"t": (0,)}, "b": {"t": ()}})
    shard.step(Loaded(), 0)
    found = Scraped(NumbersOnly([shard], {"t": 4})).read()
    assert of(found, "muster_group_unowned_partitions", group="g") == 3
    assert of(found, "muster_group_idle_members", group="g") == 1
    assert of(found, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="1") == -1
    assert of(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") is None


def test_a_group_without_members_has_no_unowned_partitions() -> None:
    shard = shard_with({"t": 4})
    store_group(shard, "g", {})
    commit(shard, "g", {("t", 0): 1})
    found = Scraped(NumbersOnly([shard], {"t": 4})).read()
    assert of(found, "muster_group_unowned_partitions", group="g") == 0
    assert of(found, "muster_group_imbalance_ratio", group="g", by="count") is None


def test_commit_ages_are_for_those_who_ask() -> None:
    assert "muster_member_commit_age_seconds" not in names(Scraped(two_members()).read(6_000))
    found = Scraped(two_members(), SeriesGranularity(commit_age=True)).read(6_000)
    assert of(found, "muster_member_commit_age_seconds", group="g", member="b") == 5
    assert (
        of(
            Scraped(two_members(), SeriesGranularity(commit_age=True)).read(0),
            "muster_member_commit_age_seconds",
            group="g",
            member="b",
        )
        == 0
    )


def test_lag_in_seconds_comes_of_when_the_topic_ended_there() -> None:
    source = two_members()
    scraped = Scraped(source)
    assert of(scraped.read(0), "muster_group_lag_seconds", group="g", topic="t") is None
    source.ended = {("t", partition): 120 for partition in range(4)}
    # 80 records came in 10 s; the group is 100 behind: beyond what was seen, at the same rate.
    found = scraped.read(10_000)
    lag = of(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t")
    assert lag == 100
    assert of(found, "muster_group_lag_seconds", group="g", topic="t") == 12.5


def test_a_dead_group_s_series_go_with_it() -> None:
    source = two_members()
    scraped = Scraped(source)
    scraped.rebalances.count_rebalance("g", "classic", entry(1))
    scraped.fenced["g", ErrorCode.UNKNOWN_MEMBER_ID] = 2
    assert of(scraped.read(), "muster_group_rebalances_total", group="g", cause="member_joined") == 1
    source.shards[0].apply(GroupDeleted("g"))
    source.shards[0].state.offsets.pop("g", None)
    assert '"g"' not in scraped.text()
    assert (scraped.rebalances.groups, scraped.fenced) == ({}, {})


def test_while_a_shard_is_away_nothing_is_forgotten_of_its_groups() -> None:
    source = two_members()
    scraped = Scraped(source)
    scraped.rebalances.count_rebalance("g", "classic", entry(1))
    shards, source.shards, source.away = source.shards, [], True
    assert '"g"' not in scraped.text()
    source.shards, source.away = shards, False
    assert of(scraped.read(), "muster_group_rebalances_total", group="g", cause="member_joined") == 1


def test_a_dead_topic_s_series_go_with_it() -> None:
    source = two_members()
    scraped = Scraped(source)
    scraped.read()
    source.topics = {}
    assert not any(name.startswith("kafka_topic") for name in names(scraped.read()))


def test_an_entry_is_counted_once_however_often_it_is_told_of() -> None:
    scraped = Scraped(two_members())
    failed = entry(2, Cause.ASSIGNOR_FAILED, outcome=Outcome.SUPERSEDED, phases=(), moves=())
    settled = entry(2, Cause.SUBSCRIPTION_CHANGED, unowned_partition_ms=1_500)
    for told in (entry(1), failed, entry(2, Cause.SUBSCRIPTION_CHANGED), settled, settled):
        scraped.rebalances.count_rebalance("g", "classic", told)
    found = scraped.read()
    causes = {key: value for key, value in found.items() if key[0] == "muster_group_rebalances_total"}
    assert sorted(causes.values()) == [1, 1]
    assert of(found, "muster_group_rebalances_total", group="g", cause="assignor_failed") == 1
    assert of(found, "muster_group_partitions_moved_total", group="g", assignor="range") == 4
    assert of(found, "muster_group_unavailable_partition_seconds_total", group="g") == 1.5
    duration = {"group": "g", "protocol": "classic"}
    assert of(found, "muster_group_rebalance_duration_seconds_count", **duration) == 2
    assert of(found, "muster_group_rebalance_duration_seconds_sum", **duration) == 6
    assert of(found, "muster_group_rebalance_duration_seconds_bucket", **duration, le="2.5") == 0
    assert of(found, "muster_group_rebalance_duration_seconds_bucket", **duration, le="5.0") == 2
    assert {name: timing.count for name, timing in scraped.rebalances.phases.items()} == {"join": 2, "plan": 2}


def test_what_settles_later_is_a_phase_of_its_own() -> None:
    rebalances = RebalanceTotals()
    whole = (RebalancePhase("join", 1), RebalancePhase("plan", 1), RebalancePhase("settle", 4_000))
    rebalances.count_rebalance("g", "classic", entry(1))
    rebalances.count_rebalance("g", "classic", entry(1, phases=whole, unowned_partition_ms=0))
    assert {name: timing.count for name, timing in rebalances.phases.items()} == {"join": 1, "plan": 1, "settle": 1}
    assert rebalances.phases["settle"].seconds == 4


def test_a_phase_that_waited_has_an_exemplar_that_says_for_whom() -> None:
    rebalances = RebalanceTotals()
    late = PhaseWait("m-1", "billing" * 20, WaitEnd.EXPIRED, 6_000)
    for number, waits in enumerate(((), (late,), (PhaseWait("m-2", "", WaitEnd.JOINED, 1), late), ()), 1):
        phases = (RebalancePhase("join", 6_000, waits=waits), RebalancePhase("plan", 1))
        rebalances.count_rebalance("orders", "classic", entry(number, phases=phases))
    _, encode, _ = negotiate_format("application/openmetrics-text; version=1.0.0")
    written = encode_family(counted_families(Instruments(), rebalances, str), encode).decode()
    told = [line for line in written.splitlines() if " # " in line]
    begin = 'muster_handoff_duration_seconds_bucket{le="10.0",phase="join"} 4.0 # '
    assert told == [
        f'{begin}{{came="expired",group="orders",rebalance="3",waited_for="billingbillingbillingbillingbi"}} 6.0'
    ]
    labels = re.findall(r'(\w+)="([^"]*)"', told[0].partition("# ")[2])
    assert len(labels) == 4
    assert sum(len(name) + len(value) for name, value in labels) <= 128
    rebalances.keep({"others"})
    assert rebalances.exemplars == {"join": {}}, "what is told of a group goes with it"


def test_fenced_requests_by_reason() -> None:
    scraped = Scraped(two_members())
    scraped.fenced["g", ErrorCode.FENCED_INSTANCE_ID] = 3
    assert of(scraped.read(), "muster_fenced_requests_total", group="g", reason="FENCED_INSTANCE_ID") == 3


@pytest.mark.parametrize(
    ("granularity", "without"),
    [
        ("topic", {"kafka_consumergroup_lag", "kafka_topic_partition_leader"}),
        ("group", {"kafka_consumergroup_lag", "kafka_topic_partitions", "muster_group_lag_seconds"}),
    ],
)
def test_granularity(granularity: str, without: set[str]) -> None:
    scraped = Scraped(two_members(), SeriesGranularity(granularity))
    scraped.read(0)
    assert not names(scraped.read(10_000)) & without
    assert {"kafka_consumergroup_lag_sum", "kafka_consumergroup_members"} <= names(scraped.read(10_000))


def test_beyond_the_limit_the_finest_of_the_largest_goes_first() -> None:
    shard = shard_with({"t": 4, "u": 40})
    store_group(shard, "small", {"a": {"t": (0,)}})
    store_group(shard, "large", {"a": {"u": (0,)}})
    commit(shard, "small", {("t", 0): 1})
    commit(shard, "large", {("u", 0): 1})
    scraped = Scraped(NumbersOnly([shard], {"t": 4, "u": 40}), SeriesGranularity(max_series=60))
    page = scraped.page()
    text = b"".join(page.sheet.pieces()).decode()
    # Largest first: the 280 series of u's partitions, then the 80 of the group that reads it.
    assert page.budget.dropped == {Level.PARTITION: 280 + 80}
    assert page.sheet.series <= 60
    assert 'kafka_consumergroup_lag{consumergroup="small",topic="t",partition="0"} 99' in text
    assert 'kafka_consumergroup_lag{consumergroup="large"' not in text
    assert 'kafka_consumergroup_lag_sum{consumergroup="large",topic="u"} 99' in text


def test_what_would_be_written_is_what_counts_against_the_limit() -> None:
    """Of groups without members less is told, and less counts; what is not known yet (rate, weight, age) does."""
    source = two_members()
    store_group(source.shards[0], "empty", {})
    for commit_age in (False, True):
        exactly = Scraped(source, SeriesGranularity(max_series=10**6, commit_age=commit_age)).page().sheet.series
        for room, dropped in ((3, 0), (2, 28)):
            page = Scraped(source, SeriesGranularity(max_series=exactly + room, commit_age=commit_age)).page()
            assert page.budget.dropped.total() == dropped


def test_sums_and_members_stay_whatever_the_limit() -> None:
    found = Scraped(two_members(), SeriesGranularity(max_series=1)).read(10_000)
    stay = {"kafka_consumergroup_lag_sum", "kafka_consumergroup_current_offset_sum", "kafka_consumergroup_members"}
    assert names(found) == stay


def test_names_full_of_quotes_and_new_lines_are_read_again_as_they_were() -> None:
    shard = shard_with({"t": 1})
    store_group(shard, NASTY, {"a": {"t": (0,)}})
    commit(shard, NASTY, {("t", 0): 1})
    found = Scraped(NumbersOnly([shard], {"t": 1})).read()
    assert of(found, "kafka_consumergroup_lag", consumergroup=NASTY, topic="t", partition="0") == 99


def test_openmetrics_is_read_by_its_own_parser() -> None:
    scraped = Scraped(two_members())
    scraped.rebalances.count_rebalance("g", "classic", entry(1, unowned_partition_ms=5))
    text = scraped.text(form=ExpositionFormat(openmetrics=True)) + "# EOF\n"
    families = {family.name: family.type for family in openmetrics.text_string_to_metric_families(text)}
    assert families["muster_group_rebalances"] == "counter"
    assert families["muster_group_rebalance_duration_seconds"] == "histogram"
    assert families["kafka_consumergroup_lag_sum"] == "gauge"


def test_a_family_s_lines_stand_together() -> None:
    shard = shard_with({"t": 450, "u": 3})
    for group in ("g", "h"):
        store_group(shard, group, {"a": {"t": (0,), "u": (0, 1)}})
        commit(shard, group, {("t", 0): 1, ("u", 1): 2})
    text = Scraped(NumbersOnly([shard], {"t": 450, "u": 3})).text()
    order = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    changes = [name for name, before in zip(order, ["", *order], strict=False) if name != before]
    assert len(changes) == len(set(changes))


def test_no_step_goes_through_more_than_a_slice() -> None:
    shard = shard_with({"t": 5_000})
    store_group(shard, "g", {"a": {"t": tuple(range(5_000))}})
    commit(shard, "g", {("t", partition): 1 for partition in range(5_000)})
    source = NumbersOnly([shard], {"t": 5_000})
    scraped = Scraped(source)
    asked: list[int] = []
    look = source.ends
    source.ends = lambda topic, partitions: asked.append(len(partitions)) or look(topic, partitions)  # type: ignore
    page = scraped.scraper.page(ExpositionFormat())
    for _ in steps_of(scraped.scraper, page, 0):
        assert sum(asked) <= 200
        asked.clear()
