"""Structured logs on standard error: one line of text or one JSON object per event."""

import logging
import sys
from typing import Any, Literal, TextIO

import structlog

LogFormat = Literal["console", "json"]


def configure_logs(level: str, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Set up structlog, and send what libraries log through the standard library to the same place.

    `level` is a name of the logging module. Colours appear on a terminal only.
    """
    target = stream if stream is not None else sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *endings(log_format, colours=target.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


def endings(log_format: LogFormat, *, colours: bool) -> list[Any]:
    """The processors that turn an event into its line."""
    if log_format == "json":
        return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(sort_keys=True)]
    return [structlog.dev.ConsoleRenderer(colors=colours)]
