"""What is told of a collector that takes nothing, and what becomes of rebalances that nobody takes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import ClassVar

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from muster.coordinator.observability.tracing import export
from muster.coordinator.observability.tracing.export import (
    OutageLoggingExporter,
    RebalanceExport,
    SpanQueueRoom,
    count_spans,
    make_spans,
    parse_traceparent,
)
from muster.coordinator.observability.tracing.rebalance_spans import plan_spans
from tests.unit.observability.tracing.test_spans import ENTRY

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Moody(SpanExporter):
    """Takes spans, or does not."""

    takes = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        pass


def test_that_it_is_away_and_there_again_is_said_once_each() -> None:
    inner = Moody()
    exporter = OutageLoggingExporter(inner, "http://collector:4317")
    span = TracerProvider().get_tracer("t").start_span("s")
    assert isinstance(span, ReadableSpan)
    with capture_logs() as told:
        for takes in (False, False, True, True, False):
            inner.takes = takes
            exporter.export([span])
    assert [line["event"].split(",")[0] for line in told] == [
        "traces cannot be sent",
        "the collector accepts traces again",
        "traces cannot be sent",
    ]
    assert told[1]["spans_lost"] == 2


def test_an_entry_is_one_trace_at_the_times_of_the_ledger() -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    make_spans(provider.get_tracer("t"), plan_spans("g", ENTRY), TRACEPARENT)
    *children, root = memory.get_finished_spans()
    assert (root.start_time, root.end_time) == (1_000 * 10**6, 4_500 * 10**6)
    assert {child.parent.span_id for child in children if child.parent} == {root.context.span_id}
    assert [f"{link.context.trace_id:032x}" for link in root.links] == [TRACEPARENT[3:35]]


def test_what_happened_within_a_member_s_part_is_told_at_its_time() -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    first, *others = ENTRY.members
    entry = replace(ENTRY, members=(replace(first, joined_at_ms=1_500, synced_at_ms=4_200), *others))
    make_spans(provider.get_tracer("t"), plan_spans("g", entry), "")
    told = {span.name: [(event.name, event.timestamp) for event in span.events] for span in memory.get_finished_spans()}
    assert told["member ca"] == [("joined", 1_500 * 10**6), ("synced", 4_200 * 10**6)]
    assert told["rebalance g"] == told["member b"] == []


@pytest.mark.parametrize("text", ["", "nonsense", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_what_names_no_span_is_no_link(text: str) -> None:
    assert parse_traceparent(text) is None


def test_what_there_is_no_room_for_is_thrown_away_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    making, go_on = Event(), Event()

    def slow(*_: object) -> None:
        making.set()
        go_on.wait()

    monkeypatch.setattr(export, "QUEUE", 2)
    monkeypatch.setattr(export, "make_spans", slow)
    told = RebalanceExport("http://127.0.0.1:1", 1, "0")
    with capture_logs() as lines:
        told.enqueue_rebalance("g", ENTRY, "")
        assert making.wait(30)
        for _ in range(10):
            told.enqueue_rebalance("g", ENTRY, "")
    assert [line["event"].split(";")[0] for line in lines] == ["too many rebalances to export as traces"]
    go_on.set()
    told.close()


class Slow(SpanExporter):
    """A collector that takes everything, once it may."""

    may = Event()
    taken: ClassVar[list[ReadableSpan]] = []

    def __init__(self, **_: object) -> None:
        pass

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may.wait()
        self.taken.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def test_a_collector_that_is_slow_gets_whole_traces_and_what_is_left_out_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_one = count_spans(plan_spans("g", ENTRY))
    monkeypatch.setattr(export, "SPANS", 3 * of_one + 1)
    monkeypatch.setattr(export, "EVERY_MS", 1)
    monkeypatch.setattr(export, "OTLPSpanExporter", Slow)
    told = RebalanceExport("http://127.0.0.1:1", 1, "0")
    with capture_logs() as lines:
        for _ in range(10):
            told.enqueue_rebalance("g", ENTRY, "")
        told._queue.put(None)
        told._thread.join()  # each has been looked at
        Slow.may.set()
        told.close()
    assert [(line["event"].split(";")[0], line.get("left_out")) for line in lines] == [
        ("too many rebalances to export as traces", None),
        ("all rebalances are exported as traces again", 7),
    ]
    assert sorted(Counter(span.context.trace_id for span in Slow.taken).values()) == [of_one] * 3


def test_room_is_given_back_and_its_want_is_said_anew() -> None:
    room = SpanQueueRoom(10)
    with capture_logs() as lines:
        assert [room.takes(6), room.takes(6), room.takes(4), room.takes(1)] == [True, False, True, False]
        room.sent(6)
        room.sent(4)
        room.sent(0)
        assert [room.takes(11), room.takes(10)] == [False, True]
    assert [line.get("left_out", line["log_level"]) for line in lines] == ["warning", 2, "warning"]
