"""Every event is one line in the chosen format, whoever logged it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from muster.coordinator.server.node.logs import configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_has_one_object_per_event_with_its_traceback() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    structlog.get_logger("muster.node").info("listening", port=9290)
    logging.getLogger("muster.storage").warning("partition %s is damaged", "t-1")
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        structlog.get_logger("muster.grpc").exception("handler failed")
    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["event"], first["port"], first["level"], first["logger"]) == (
        "listening",
        9290,
        "info",
        "muster.node",
    )
    assert (second["event"], second["level"]) == ("partition t-1 is damaged", "warning")
    assert "ZeroDivisionError: a bug" in third["exception"]


def test_what_is_less_important_than_the_level_is_left_out() -> None:
    stream = io.StringIO()
    configure_logs("warning", "console", stream)
    structlog.get_logger("muster.node").info("unimportant")
    structlog.get_logger("muster.node").warning("important", shard=3)
    (line,) = stream.getvalue().splitlines()
    assert "important" in line
    assert "shard=3" in line
    assert "\x1b" not in line
