"""What the log of the controller's node says of elections: a line for those that are alike."""

from structlog.testing import capture_logs

from muster.coordinator.cluster.controller.effects import Clean, Note
from muster.coordinator.cluster.facts import NOBODY, TopicPartition
from muster.coordinator.server.clustered.noting import tell_elections


def note(number: int, *, after: int = 1, clean: Clean = Clean.ISR, took_ms: int = 5) -> Note:
    return Note(TopicPartition("t", number), 4, 3, after, clean, "node 3 evicted", (1, 2), (), 90, took_ms)


def test_one_election_is_told_with_all_there_is_to_it() -> None:
    with capture_logs() as lines:
        tell_elections([note(7)])
    assert lines == [
        {
            "event": "elected", "log_level": "info", "unit": "t-7", "epoch": 4, "isr": [1, 2], "took_ms": 5,
            "before": 3, "after": 1, "clean": "isr", "cause": "node 3 evicted",
        }
    ]  # fmt: skip


def test_many_that_are_alike_are_one_line_and_what_is_not_has_its_own() -> None:
    alike = [note(number, took_ms=number) for number in range(100)]
    with capture_logs() as lines:
        tell_elections([*alike, note(100, after=NOBODY, clean=Clean.OFFLINE), note(101, after=2), note(102, after=2)])
    assert [line["event"] for line in lines] == ["elected", "nobody leads", "elected"]
    many, alone, few = lines
    assert (many["count"], many["units"]) == (100, ["t-0", "t-1", "t-2", "t-3", "t-4", "..."])
    assert many["took_ms"] == 99
    assert alone["unit"] == "t-100"
    assert (few["count"], few["units"], few["after"]) == (2, ["t-101", "t-102"], 2)
