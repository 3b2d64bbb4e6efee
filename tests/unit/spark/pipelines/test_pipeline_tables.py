"""What the pipelines read and write, piece by piece, without Spark and without a node."""

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from muster.assignors.api import Member, Snapshot
from muster.client.types import OffsetAndTimestamp, TopicPartition
from muster.coordinator.core.model.records import (
    GroupStored,
    OffsetDeleted,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    Record,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    MemberPlan,
    Outcome,
    PartitionMove,
    PhaseWait,
    RebalanceEntry,
    RebalancePhase,
    Settlement,
    StoredOffset,
    WaitEnd,
)
from muster.coordinator.runtime.kafka_records import encode
from muster.spark.pipelines.decoding import ledger_columns, offsets_columns, waits_columns
from muster.spark.pipelines.recorded import (
    LATER,
    NOW,
    RETAINED,
    PastLogEnd,
    RecordedEntry,
    RecordedLags,
    RecordedPosition,
    build_table,
    build_trace,
    choose_moments,
    find_lag_moments,
    find_log_ends,
    note_position,
    read_entries,
)
from muster.spark.pipelines.reports import ReportPage

ENTRY = RebalanceEntry(
    number=3,
    previous_generation=2,
    generation=4,
    protocol_type="consumer",
    protocol_name="sticky",
    cause=Cause.SESSION_EXPIRED,
    culprit="b",
    culprit_client_id="worker-b",
    culprit_client_host="127.0.0.1",
    detail="b was not heard of",
    client_reason="",
    outcome=Outcome.COMPLETED,
    started_at_ms=1_000,
    ended_at_ms=1_200,
    phases=(RebalancePhase("join", 150), RebalancePhase("plan", 50)),
    members=(MemberPlan("a", "worker-a", "127.0.0.1", None, (("t", (0, 1)), ("u", (0,)))),),
    moves=(PartitionMove("t", 1, "b", "a", -1, "session expired"),),
    snapshot_source="leader",
)


def written(*records: Record) -> tuple[pa.Array, pa.Array]:
    """Keys and values as the node writes them, both topics alike."""
    found = encode(records)
    stored = [*found.ledger, *found.groups]
    kind = pa.binary()
    return pa.array([one.key for one in stored], kind), pa.array([one.value for one in stored], kind)


def test_ledger_records_become_columns() -> None:
    settlement = Settlement(3, 1_500, ("a",), (("t", 1, 700),), 900)
    columns = ledger_columns(*written(RebalanceDecided("g", ENTRY), RebalanceSettled("g", settlement)))
    decided, settled = columns.to_pylist()
    assert (decided["kind"], decided["group"], decided["number"]) == ("decided", "g", 3)
    assert decided["entry"]["cause"] == "session expired"
    assert decided["entry"]["members"][0]["partitions"] == 3
    assert decided["entry"]["moves"][0] == {
        "topic": "t",
        "partition": 1,
        "source": "b",
        "target": "a",
        "unowned_ms": -1,
        "why": "session expired",
    }
    assert (settled["kind"], settled["entry"]) == ("settled", None)
    assert settled["settlement"]["unowned"] == [{"topic": "t", "partition": 1, "unowned_ms": 700}]
    assert settled["settlement"]["unowned_partition_ms"] == 900


def test_waits_are_those_that_the_ledger_tells() -> None:
    entry = replace(
        ENTRY,
        phases=(RebalancePhase("join", 5_000, ("b",), (PhaseWait("b", "worker-b", WaitEnd.EXPIRED, 5_000),)),),
        members=(MemberPlan("a", "worker-a", "h", None, ()), MemberPlan("c", "worker-c", "h", None, ())),
        certainty=Certainty.RECORDED,
    )
    classic = Settlement(3, 11_200, ("c",), (), 0, (("a", 1_210),))
    consumer = replace(classic, synced=(), waits=(PhaseWait("c", "worker-c", WaitEnd.JOINED, 900),))
    ledger = ledger_columns(*written(*(RebalanceSettled("g", each) for each in (classic, consumer)))).to_pylist()
    (decided,) = ledger_columns(*written(RebalanceDecided("g", entry))).to_pylist()
    assert (decided["entry"]["certainty"], decided["entry"]["evidence"]) == ("recorded", "")
    older = {"name": "join", "duration_ms": 1, "waits": None}
    settled = [*(row["settlement"] for row in ledger), None, ledger[0]["settlement"] | {"synced": None}]
    told = waits_columns(
        pa.array([decided["entry"]["phases"]] * 3 + [[older]]),
        pa.array([decided["entry"]["members"]] * 4),
        pa.array([1_200] * 4),
        pa.array(settled),
    ).to_pylist()
    expired = {"phase": "join", "member": "b", "client_id": "worker-b", "came": "expired", "after_ms": 5_000}
    never = {"phase": "settle", "member": "c", "client_id": "worker-c", "came": "never", "after_ms": 10_000}
    assert told == [[expired, never], [expired, never | {"came": "joined", "after_ms": 900}], [expired], []]


def test_entries_that_the_node_forgot_are_no_entries_and_no_faults() -> None:
    columns = ledger_columns(*written(RebalanceForgotten("g", 3)))
    assert {row["kind"] for row in columns.to_pylist()} == {"other"}


def test_offset_records_become_columns() -> None:
    stored = OffsetStored("g", "t", 1, StoredOffset(42, -1, "", 5_000))
    group = GroupStored("g", "consumer", 7, "range", "a", 5_000, ())
    rows = offsets_columns(*written(stored, OffsetDeleted("g", "t", 1), group)).to_pylist()
    assert [row["kind"] for row in rows] == ["committed", "forgotten", "planned"]
    assert (rows[0]["committed"], rows[0]["committed_at_ms"]) == (42, 5_000)
    assert (rows[1]["topic"], rows[1]["partition"], rows[1]["committed"]) == ("t", 1, None)
    assert rows[2]["generation"] == 7


def test_what_nobody_can_read_is_a_row_that_says_so() -> None:
    keys, values = (
        pa.array([b"\x00\x01garbage", b"\x00", None], pa.binary()),
        pa.array([b"x", b"{}", None], pa.binary()),
    )
    for columns in (ledger_columns(keys, values), offsets_columns(keys, values)):
        assert [row["kind"] for row in columns.to_pylist()] == ["malformed"] * 3
        assert all(row["problem"] for row in columns.to_pylist())


class Node:
    """Answers as a node does whose log t-0 lost records 0 to 9 and got one record each second since."""

    def list_topics(self) -> dict[str, int]:
        return {"t": 1}

    def list_offsets(self, times: dict[tuple[str, int], int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        (at_ms,) = set(times.values())
        if at_ms in (-1, -2):
            offset = 10 if at_ms == -2 else 15
        else:
            offset = next((n for n in range(10, 15) if n * 1_000 >= at_ms), -1)
        return {TopicPartition(*tp): OffsetAndTimestamp(offset, at_ms) for tp in times}


def test_the_end_of_a_log_at_a_moment_is_where_the_next_record_stands() -> None:
    ends = find_log_ends(Node(), [("t", 0), ("t", 7), ("gone", 0)], [5_000, 11_000, 13_999, 20_000])  # type: ignore[arg-type]
    assert ends == [
        PastLogEnd("t", 0, 5_000, 10, RETAINED),
        PastLogEnd("t", 0, 11_000, 12, LATER),
        PastLogEnd("t", 0, 13_999, 14, LATER),
        PastLogEnd("t", 0, 20_000, 15, NOW),
    ]
    assert build_table(ends).num_rows == 4


def test_too_many_look_ups_are_refused() -> None:
    with pytest.raises(ValueError, match="make the pause between moments longer"):
        find_log_ends(Node(), [("t", 0)], range(3_000_000))  # type: ignore[arg-type]


@pytest.mark.parametrize(("span_ms", "every_ms"), [(60_000, 1_000), (3_600_000, 10_000), (30 * 86_400_000, 21_600_000)])
def test_a_line_has_some_hundred_moments_however_long_it_is(span_ms: int, every_ms: int) -> None:
    found = choose_moments(0, span_ms, None)
    assert found.step == every_ms
    assert 50 < len(found) < 500


def test_positions_are_read_in_order_and_a_tombstone_ends_one() -> None:
    found: dict[tuple[str, int], list[RecordedPosition]] = {}
    records = (
        OffsetStored("g", "t", 0, StoredOffset(5, -1, "", 1_000)),
        OffsetStored("other", "t", 0, StoredOffset(9, -1, "", 1_000)),
        OffsetStored("g", "t", 0, StoredOffset(7, -1, "", 900)),
        OffsetDeleted("g", "t", 0),
        OffsetDeleted("g", "never", 0),
    )
    assert all(note_position(found, "g", stored) for stored in encode(records).groups)
    assert found == {("t", 0): [RecordedPosition(1_000, 5), RecordedPosition(1_000, 7), RecordedPosition(1_000, None)]}
    assert not note_position(found, "g", encode(records).groups[0]._replace(value=b"\x00\x09"))


def entry(started_ms: int, cause: str, snapshot: Snapshot | None, **idle_ms: int) -> RecordedEntry:
    return RecordedEntry(started_ms, started_ms + 500, cause, snapshot, idle_ms)


def test_a_recorded_group_is_followed_from_entry_to_entry() -> None:
    """a alone, then with b, whose crash is noticed after ten seconds; at last nobody."""
    alone = Snapshot({"t": 2}, [Member("a", ("t",))], lags={"t": [7, 8]})
    both = Snapshot({"t": 2}, [Member("a", ("t",)), Member("b", ("t", "u"), instance_id="i", rack="r")])
    entries = [
        entry(1_000, "member joined", alone),
        entry(5_000, "member joined", both),
        entry(20_000, "session expired", alone, b=10_500),
        entry(30_000, "member left", None),
    ]
    times = find_lag_moments(entries, 32_000, 10_000)
    assert times == [1_000, 5_000, 15_000, 20_000, 30_000]
    ends = {(("t", number), at): 100 for number in range(2) for at in times}
    lags = RecordedLags(
        {
            ("t", 0): [RecordedPosition(4_000, 60)],
            ("t", 1): [RecordedPosition(4_000, 90), RecordedPosition(16_000, None)],
        },
        ends,
    )
    trace = build_trace("g", entries, times, lags, 32_000)
    assert [member.id for member in trace.members] == ["a", "b"]
    assert trace.members[1][1:] == ("i", "r")
    assert [step.present for step in trace.steps] == [(0,), (0, 1), (0, 1), (0,), ()]
    assert [step.cause for step in trace.steps][1:4] == ["member joined", "", "session expired"]
    assert trace.steps[3].lost == ((1, 10_000),)
    assert trace.steps[4].lost == ((0, 30_000),)
    assert trace.load.tolist() == [[7, 8], [40, 10], [40, 10], [7, 8], [40, 8]]
    assert trace.subscriptions == (("t",),), "there is no u"


def test_a_topic_nobody_has_any_more_is_no_topic_of_the_trace() -> None:
    """A subscription may name topics that do not exist; the trace knows those that did."""
    documents = [
        {
            "outcome": "COMPLETED",
            "cause": "MEMBER_JOINED",
            "started_at_ms": 1,
            "ended_at_ms": 2,
            "moves": [],
            "snapshot": {"topics": {"t": 1}, "members": [{"id": "a", "topics": ["t", "missing"]}]},
        },
        {"outcome": "SUPERSEDED", "cause": "MEMBER_JOINED", "snapshot": None},
    ]
    entries = read_entries(documents)
    assert len(entries) == 1
    trace = build_trace("g", entries, [1], RecordedLags(), 10)
    assert (trace.topics, trace.subscriptions) == (("t",), (("t",),))


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ({}, "expected what .groups explain -o json. prints"),
        ([], "no rebalance was recorded with a snapshot"),
        ([{"outcome": "COMPLETED"}], "an entry without 'cause'"),
        ([3], "an entry without"),
    ],
)
def test_a_ledger_that_is_none_is_refused(documents: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_entries(documents)


def test_a_page_makes_everything_safe_and_says_what_it_leaves_out() -> None:
    page = ReportPage("<script>", "lead")
    page.table("t", "", [{"<b>": "<i>&", "n": number} for number in range(203)])
    text = page.html()
    assert "<script>" not in text
    assert "<i>" not in text
    assert "&lt;i&gt;&amp;" in text
    assert "3 more rows" in text


def test_charts_of_the_same_figures_have_the_same_bytes() -> None:
    def drawn() -> str:
        page = ReportPage("t", "")
        page.chart("c", "", lambda figure: figure.subplots().plot([1, 2], [3, 4]))
        return page.html()

    assert drawn() == drawn()


def test_help_of_the_pipelines_needs_neither_spark_nor_numpy() -> None:
    program = (
        "import sys\nfrom muster.cli.main import main\n"
        "for words in (['pipeline', '--help'], *(['pipeline', c, '--help'] for c in "
        "('backtest', 'analytics', 'export-trace'))):\n    assert main(words) == 0\n"
        "sys.exit(', '.join({'pyspark', 'pyarrow', 'numpy', 'matplotlib', 'grpc'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
