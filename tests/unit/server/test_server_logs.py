"""Every event is one line in the chosen format, whoever logged it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from muster.coordinator.server.node_log import MOST_LINES, configure_logs


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
    configure_logs("info", "json", stream, node_id=7)
    structlog.get_logger("muster.node").info("listening", port=9290)
    logging.getLogger("muster.storage").warning("partition %s is damaged", "t-1")
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        structlog.get_logger("muster.grpc").exception("handler failed")
    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    timestamp = first.pop("Timestamp")
    assert timestamp.endswith("Z")
    assert first == {
        "SeverityText": "INFO",
        "SeverityNumber": 9,
        "Body": "listening",
        "Attributes": {"port": 9290},
        "Resource": {"service.name": "muster", "service.instance.id": "7"},
        "InstrumentationScope": {"Name": "muster.node"},
    }
    assert (second["Body"], second["SeverityText"]) == ("partition t-1 is damaged", "WARNING")
    assert third["SeverityNumber"] == 17
    assert "ZeroDivisionError: a bug" in third["Attributes"]["exception.stacktrace"]


def test_what_is_less_important_than_the_level_is_left_out() -> None:
    stream = io.StringIO()
    configure_logs("warning", "console", stream)
    structlog.get_logger("muster.node").info("unimportant")
    structlog.get_logger("muster.node").warning("important", shard=3)
    (line,) = stream.getvalue().splitlines()
    assert "important" in line
    assert "shard=3" in line
    assert "\x1b" not in line


def test_names_that_clients_chose_command_no_terminal() -> None:
    stream = io.StringIO()
    configure_logs("info", "console", stream)
    structlog.get_logger("muster.node").info("rebalance", group="a\x1b[2J\nb")
    (line,) = stream.getvalue().splitlines()
    assert "a\\x1b[2J\\nb" in line


def lines_of(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["Body"] for line in stream.getvalue().splitlines()]


def test_lines_that_repeat_are_counted() -> None:
    stream = io.StringIO()
    repeats = configure_logs("info", "json", stream)
    clock = [0.0]
    repeats._clock = lambda: clock[0]
    log = structlog.get_logger("muster.node")
    for _ in range(5):
        log.warning("disk is slow", disk="d")
        logging.getLogger("library").warning("retry %s", "x")
    log.warning("disk is slow", disk="e")
    assert lines_of(stream) == ["disk is slow", "retry x", "disk is slow"], "another disk is another line"
    clock[0] = 60.0
    log.info("something else")
    assert lines_of(stream)[3:] == [
        "disk is slow (4 times more within a minute)",
        "retry x (4 times more within a minute)",
        "something else",
    ]
    summary = json.loads(stream.getvalue().splitlines()[3])
    assert (summary["Attributes"], summary["SeverityText"]) == ({"disk": "d"}, "WARNING"), "which of them it was"
    log.warning("disk is slow", disk="d")
    assert lines_of(stream)[-1] == "disk is slow", "a new minute, a new line"


def test_what_is_still_to_be_said_is_said_at_the_end() -> None:
    stream = io.StringIO()
    repeats = configure_logs("info", "json", stream)
    log = structlog.get_logger("muster.node")
    for _ in range(3):
        log.info("again")
    repeats.close()
    repeats.close()
    assert lines_of(stream) == ["again", "again (2 times more within a minute)"]


def test_only_so_many_lines_are_kept_in_mind() -> None:
    stream = io.StringIO()
    repeats = configure_logs("info", "json", stream)
    log = structlog.get_logger("muster.node")
    log.info("first")
    log.info("first")
    for number in range(MOST_LINES):
        log.info("line", number=number)
    assert len(repeats._seen) == MOST_LINES
    assert "first (1 times more within a minute)" in lines_of(stream)
