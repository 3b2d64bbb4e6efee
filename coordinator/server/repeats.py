"""Lines that repeat are counted: the first is written, the others of its minute are one line that says how many."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

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
