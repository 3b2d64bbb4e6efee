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
