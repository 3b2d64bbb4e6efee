"""What the ledger keeps when an assignor on the coordinator failed and the last plan stayed."""

from muster.assignors.api import Snapshot
from tests.support.stories.script import Stage


def test_the_snapshot_says_what_the_group_got_instead_and_why() -> None:
    stage = Stage()
    for command in (
        "topics t=2",
        "join g a session=30000 remote=range",
        "advance 3s",
        "sync g a",
        "planner later",
        "join g a topics=t,u",
        "answer g error=cheese",
    ):
        stage.run([command])
    entry = max(stage.shard.ledgers["g"].entries.values(), key=lambda entry: entry.number)
    assert entry.snapshot_source == "remote"
    options = Snapshot.from_json(entry.snapshot_json).options
    assert options == {"fallback": "last good assignment", "reason": "cheese", "handover": []}
    assert stage.shard.groups["g"].planned_topics == {"t": 2}


def test_an_entry_names_the_assignor_that_made_the_plan_or_was_to() -> None:
    """Members vote for range, and the coordinator plans by another: the log and `explain` tell one truth."""
    stage = Stage()
    for command in ("topics t=2", "planner later", "join g a session=30000 remote=sticky", "advance 3s"):
        stage.run([command])
    stage.run(["answer g error=cheese"])
    stage.run(["advance 1s"])
    stage.run(["join g a"])
    stage.run(["answer g"])
    entries = [entry for _, entry in sorted(stage.shard.ledgers["g"].entries.items())]
    assert [entry.outcome.name for entry in entries] == ["SUPERSEDED", "COMPLETED"]
    assert {entry.protocol_name for entry in entries} == {"sticky"}
    assert stage.shard.groups["g"].protocol_name == "range"
