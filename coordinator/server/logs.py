"""Structured logs on standard error: one line of text or one JSON object per event, ours and the libraries' alike."""

import logging
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from muster.coordinator.observability.views.formatting import harmless
from muster.coordinator.server.repeats import RepeatFilter

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
