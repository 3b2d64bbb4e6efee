"""What a log finds wrong with itself is a condition of the node, in the log's own words."""

import errno

from muster.coordinator.runtime.node_status import LOG, Conditions
from muster.coordinator.server.node_events import PASSING_MS, LogConditions
from muster.storage.errors import LogFenced, StorageError, StorageTroubles


def test_troubles_become_conditions_last_or_pass_and_go_with_their_topic() -> None:
    now_ms = 1_000
    conditions = Conditions(lambda: now_ms)
    troubles = StorageTroubles()
    carrier = LogConditions(troubles, conditions)
    full = OSError(errno.ENOSPC, "No space left on device")
    troubles.fenced(("t", 0), LogFenced("t-0 is fenced"))
    troubles.refused(("t", 0), StorageError("no room"), full)
    carrier.carry()
    assert {each.name: each.sentence for each in conditions.current()} == {
        "log-fenced:t-0": "t-0 is fenced",
        "disk-full": "no room",
    }
    assert conditions.impaired() == {LOG}

    now_ms += PASSING_MS - 1
    carrier.carry()  # Nothing was met again: that is no news.
    troubles.refused(("u", 0), StorageError("still no room"), full)
    carrier.carry()
    now_ms += PASSING_MS - 1
    assert conditions.sentence("disk-full") == "still no room"
    now_ms += 1
    carrier.carry()
    assert [each.name for each in conditions.current()] == ["log-fenced:t-0"]

    troubles.damaged(("t", 10), StorageError("another partition"))
    troubles.forget(("t", 0))
    carrier.carry()
    assert [each.name for each in conditions.current()] == ["log-damaged:t-10"]


def test_what_found_no_room_is_tried_until_it_would_or_is_refused_again() -> None:
    conditions = Conditions(lambda: 1_000)
    troubles = StorageTroubles()
    carrier = LogConditions(troubles, conditions)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert carrier.still_wanted() == 0
    troubles.refused(("t", 0), StorageError("no room"), full, 900_000)
    assert carrier.still_wanted() == 0, "nobody has been told yet"
    carrier.carry()
    troubles.refused(("u", 0), StorageError("no room"), full, 100)
    assert carrier.still_wanted() == 0, "it goes on: whoever wanted to write a moment ago was refused"
    carrier.carry()
    assert carrier.still_wanted() == 900_000, "the most of those that were refused"
    carrier.found_room()
    carrier.carry()
    assert carrier.still_wanted() == 0


def test_whoever_asks_what_is_wrong_is_told_of_a_refusal_that_was_not_carried_over_yet() -> None:
    """Upkeep carries once a second, or later where its work on the logs takes long."""
    conditions = Conditions(lambda: 1_000)
    troubles = StorageTroubles()
    conditions.before_each_look(LogConditions(troubles, conditions).carry)
    assert conditions.current() == ()
    troubles.refused(("t", 0), StorageError("no room"), OSError(errno.ENOSPC, "No space left on device"), 100)
    assert [each.name for each in conditions.current()] == ["disk-full"]
    assert conditions.impaired() == {LOG}
    assert conditions.current()[0].count == 1, "one refusal is reported once, however often somebody asks"
