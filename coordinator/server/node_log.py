"""Structured logs on standard error: one line of text or one JSON object per event, for Muster's events and libraries'.

Lines that repeat are counted: the first is written, the others of its minute become one line that says how many.
Names that clients chose for themselves cannot command a terminal.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from muster.coordinator.observability.views.formatting import harmless

# Repeated lines
# --------------

WINDOW_S = 60.0
MOST_LINES = 256
SHOWN = 200
"""Characters of a line that a summary repeats."""
VOLATILE = frozenset({"timestamp", "exc_info"})
SAID_APART = VOLATILE | {"event", "level", "logger"}
MARK = "is_summary"


@dataclass(slots=True)
class RepeatedLine:
    since_s: float
    logger: str
    level: int
    text: str
    values: Mapping[str, Any]
    """What else the line says."""
    times: int = 0
    """Beyond the first."""


class RepeatFilter(logging.Filter):
    """For the one handler of a node; keeps at most `MOST_LINES` lines in mind. Any thread.

    Two lines are the same when logger, level, event and all values are. A summary is written with the first line, of
    whatever kind, after its minute is over, or by `close`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.RLock()
        self._seen: dict[object, RepeatedLine] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_summary", False) or is_summary(record.msg):
            return True
        now_s = self._clock()
        key, text = identify_line(record)
        with self._lock:
            over = self._over(now_s)
            known = self._seen.get(key)
            if known is not None:
                known.times += 1
            else:
                if len(self._seen) >= MOST_LINES:
                    over.append(self._seen.pop(next(iter(self._seen))))
                self._seen[key] = RepeatedLine(now_s, record.name, record.levelno, text, event_values(record))
        log_summaries(over)
        return known is None

    def close(self) -> None:
        """Say what is still to be said."""
        with self._lock:
            seen, self._seen = list(self._seen.values()), {}
        log_summaries(seen)

    def _over(self, now_s: float) -> list[RepeatedLine]:
        """Those whose minute is over; the oldest are first."""
        over = []
        while self._seen:
            key, oldest = next(iter(self._seen.items()))
            if now_s - oldest.since_s < WINDOW_S:
                break
            over.append(self._seen.pop(key))
        return over


def identify_line(record: logging.LogRecord) -> tuple[object, str]:
    """What makes a line the same as another, and how it is called in a summary."""
    if isinstance(record.msg, dict):
        values = {name: value for name, value in record.msg.items() if name not in VOLATILE}
        text = str(values.get("event", ""))
        return (record.name, record.levelno, repr(sorted(values.items(), key=lambda pair: pair[0]))), text
    text = record.getMessage()
    return (record.name, record.levelno, text), text


def event_values(record: logging.LogRecord) -> Mapping[str, Any]:
    """What a line of ours says beside its event."""
    if not isinstance(record.msg, dict):
        return {}
    return {name: value for name, value in record.msg.items() if name not in SAID_APART}


def is_summary(message: object) -> bool:
    """Whether it is one of ours; the mark goes."""
    return isinstance(message, dict) and bool(message.pop(MARK, False))


def log_summaries(over: list[RepeatedLine]) -> None:
    for seen in over:
        if not seen.times:
            continue
        line = seen.text if len(seen.text) <= SHOWN else seen.text[:SHOWN] + "..."
        told = f"{line} ({seen.times} times more within a minute)"
        if seen.values:
            structlog.get_logger(seen.logger).log(seen.level, told, **seen.values, **{MARK: True})
        else:
            logging.getLogger(seen.logger).log(seen.level, "%s", told, extra={"is_summary": True})


LogFormat = Literal["console", "json"]

SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
"""OpenTelemetry's numbers of our levels."""


def configure_logs(
    level: str, log_format: LogFormat, stream: TextIO | None = None, *, node_id: int | None = None
) -> RepeatFilter:
    """Send structlog's events, and what libraries log through the standard library, to one place in one format.

    `level` is a name of the logging module. Colours appear on a terminal only. What comes back counts lines that
    repeat; close it at the end, so that it says what it still has to.
    """
    target = stream if stream is not None else sys.stderr
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(target)
    repeats = RepeatFilter()
    handler.addFilter(repeats)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *final_processors(log_format, colours=target.isatty(), node_id=node_id),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return repeats


def final_processors(log_format: LogFormat, *, colours: bool, node_id: int | None = None) -> list[Processor]:
    """The processors that turn an event into its line."""
    if log_format == "json":
        return [
            structlog.processors.format_exc_info,
            OpenTelemetryNames(node_id),
            structlog.processors.JSONRenderer(),
        ]
    return [
        escape_control_characters,
        structlog.dev.ConsoleRenderer(
            colors=colours, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]


def escape_control_characters(logger: object, method: str, event: EventDict) -> EventDict:
    """Names that clients chose for themselves command no terminal."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = harmless(value)
    return event


class OpenTelemetryNames:
    """An event under the names of OpenTelemetry's data model for logs; what is none of its fields is an attribute."""

    def __init__(self, node_id: int | None) -> None:
        self._resource: dict[str, Any] = {"service.name": "muster"}
        if node_id is not None:
            self._resource["service.instance.id"] = str(node_id)

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        level = str(event.pop("level", "info"))
        told: dict[str, Any] = {
            "Timestamp": event.pop("timestamp", None),
            "SeverityText": level.upper(),
            "SeverityNumber": SEVERITIES.get(level, 9),
            "Body": event.pop("event", ""),
        }
        scope = event.pop("logger", None)
        if "exception" in event:
            event["exception.stacktrace"] = event.pop("exception")
        told["Attributes"] = dict(sorted(event.items()))
        told["Resource"] = self._resource
        if scope is not None:
            told["InstrumentationScope"] = {"Name": scope}
        return told
