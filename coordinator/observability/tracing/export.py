"""Exports rebalances to OpenTelemetry from threads of their own, so that no request waits for it.

Belongs to the extra `otel`; imported where `otel.exporter` is set.
"""

import logging
from collections.abc import Sequence
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Final, NamedTuple

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.observability.tracing.rebalance_spans import SpanPlan, plan_spans

QUEUE: Final = 1_000
"""Rebalances that wait to be made into spans."""
SPANS: Final = 8_192
"""Spans that wait to be sent, or are being sent."""
BATCH: Final = 512
"""Of them in one request."""
EVERY_MS: Final = 1_000
TIMEOUT_S: Final = 5.0
FLUSH_TIMEOUT_S: Final = 2.0
"""How long the end of the node waits for what is still to be sent."""

log = structlog.get_logger("muster.tracing")


class CompletedRebalance(NamedTuple):
    """An entry that is whole, and the `traceparent` of the request that set it off, if it had one."""

    group_id: str
    entry: RebalanceEntry
    traceparent: str


class SpanQueueRoom:
    """For spans on their way to a collector, which may be slow: a rebalance for whose spans there is none is left out
    whole. That is told once when it begins, and once when everything was sent. Any thread."""

    def __init__(self, most: int = SPANS) -> None:
        self._most = most
        self._waiting = 0
        self._left_out = 0
        self._lock = Lock()

    def takes(self, spans: int) -> bool:
        """Whether there is room for a rebalance of so many spans; then they have it until they are `sent`."""
        with self._lock:
            fits = self._waiting + spans <= self._most
            self._waiting += spans if fits else 0
        if not fits:
            self.left_out()
        return fits

    def left_out(self) -> None:
        """A rebalance was."""
        with self._lock:
            self._left_out += 1
            first = self._left_out == 1
        if first:
            log.warning("too many rebalances to export as traces; some are left out", waiting=self._waiting)

    def sent(self, spans: int) -> None:
        """Or thrown away: they wait no longer."""
        with self._lock:
            self._waiting -= spans
            over = 0 if self._waiting else self._left_out
            self._left_out -= over
        if over:
            log.info("all rebalances are exported as traces again", left_out=over)


class OutageLoggingExporter(SpanExporter):
    """Sends by another exporter; that the collector is away, or there again, is told once."""

    def __init__(self, inner: SpanExporter, endpoint: str, room: SpanQueueRoom | None = None) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._room = room or SpanQueueRoom()
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        finally:
            self._room.sent(len(spans))
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                log.info("the collector accepts traces again", endpoint=self._endpoint, spans_lost=self._lost)
            self._lost = 0
        else:
            if not self._lost:
                log.warning(
                    "traces cannot be sent, and are discarded until then; is a collector running at otel.endpoint?",
                    endpoint=self._endpoint,
                )
            self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class RebalanceExport:
    """One node's. `enqueue_rebalance` may be called from its loop: it never waits, and drops what has no room."""

    def __init__(self, endpoint: str, node_id: int, version: str) -> None:
        # Whatever is wrong is said by us, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=TIMEOUT_S)
        self._room = SpanQueueRoom(SPANS)
        self._processor = BatchSpanProcessor(
            OutageLoggingExporter(exporter, endpoint, self._room),
            max_queue_size=SPANS,
            max_export_batch_size=min(BATCH, SPANS),
            schedule_delay_millis=EVERY_MS,
        )
        resource = Resource.create(
            {"service.name": "muster", "service.version": version, "service.instance.id": str(node_id)}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("muster", version)
        self._queue: Queue[CompletedRebalance | None] = Queue(QUEUE)
        self._thread = Thread(target=self._run, name="muster-traces", daemon=True)
        self._thread.start()

    def enqueue_rebalance(self, group_id: str, entry: RebalanceEntry, traceparent: str) -> None:
        """An entry that is whole, and what the request that set it off was part of, if anything."""
        try:
            self._queue.put_nowait(CompletedRebalance(group_id, entry, traceparent))
        except Full:
            self._room.left_out()

    def close(self) -> None:
        """Send what is left, for a short while; blocks. What a dead collector does not take is lost."""
        self._make_room()
        self._queue.put(None)
        ending = Thread(target=self._end, name="muster-traces-end", daemon=True)
        ending.start()
        ending.join(FLUSH_TIMEOUT_S)

    def _make_room(self) -> None:
        while self._queue.full():
            try:
                self._queue.get_nowait()
            except Empty:
                return

    def _end(self) -> None:
        self._thread.join()
        self._provider.shutdown()

    def _run(self) -> None:
        while (rebalanced := self._queue.get()) is not None:
            try:
                self._make(rebalanced)
            except Exception as error:  # one entry's, whatever is wrong with it
                log.error("a rebalance could not be exported as a trace", group=rebalanced.group_id, exc_info=error)

    def _make(self, rebalanced: CompletedRebalance) -> None:
        plan = plan_spans(rebalanced.group_id, rebalanced.entry)
        if self._room.takes(count_spans(plan)):
            make_spans(self._tracer, plan, rebalanced.traceparent)


def count_spans(plan: SpanPlan) -> int:
    """How many spans it is."""
    return 1 + sum(map(count_spans, plan.children))


def make_spans(tracer: Tracer, plan: SpanPlan, traceparent: str) -> None:
    """Begin and end the spans of one rebalance, at the times that its entry tells of."""
    context = parse_traceparent(traceparent)
    start_span(tracer, plan, [] if context is None else [Link(context)], None)


def start_span(tracer: Tracer, plan: SpanPlan, links: Sequence[Link], parent: trace.Span | None) -> None:
    span = tracer.start_span(
        plan.name,
        # What sets it off has a trace of its own; this one is linked to it.
        context=Context() if parent is None else trace.set_span_in_context(parent),
        attributes=dict(plan.attributes),
        links=links,
        start_time=plan.start_ms * 1_000_000,
    )
    for word, at_ms in plan.events:
        span.add_event(word, timestamp=at_ms * 1_000_000)
    for child in plan.children:
        start_span(tracer, child, (), span)
    span.end(plan.end_ms * 1_000_000)


def parse_traceparent(traceparent: str) -> SpanContext | None:
    """The span that a `traceparent` names; None for what is none."""
    if not traceparent:
        return None
    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None
