"""Structured logs on standard error: one line of text or one JSON object per event, ours and the libraries' alike."""

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

LogFormat = Literal["console", "json"]


def configure_logs(level: str, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send structlog's events, and what libraries log through the standard library, to one place in one format.

    `level` is a name of the logging module. Colours appear on a terminal only.
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
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *endings(log_format, colours=target.isatty()),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def endings(log_format: LogFormat, *, colours: bool) -> list[Processor]:
    """The processors that turn an event into its line."""
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
    return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
