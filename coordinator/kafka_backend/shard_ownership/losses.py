"""What a shard's log has lost: noticed, said, and never passed over (KB-H1).

A compacted log never begins later than at 0, and nothing acknowledged is ever behind its end. So these can be told for
certain:

- it begins later than at 0: somebody deleted records (DeleteRecords, or retention under another cleanup.policy),
- it ends before what this process had acknowledged, or a batch is put there: the log was cut short (an unclean
  election), or is another one of the same name.

That a log was cut short while no process had it cannot be told: nobody is left who knows how long it was. Nothing is
served from such a log until an operator has looked and said so; his word lies in the log itself.
"""

import json
from typing import Final, NamedTuple

from muster.coordinator.kafka_backend.shard_ownership.facts import UNREADABLE, NewRecord, ShardRecord

ACCEPTED_KEY: Final = b"\xffaccepted"


class AcceptedLoss(NamedTuple):
    """The word of an operator who looked: what a shard's log lacks is given up. start: where it began by then. token:
    tells one such word from another."""

    start: int
    token: str


def encode_accepted_loss(accepted: AcceptedLoss) -> NewRecord:
    value = {"version": 1, "start": accepted.start, "token": accepted.token}
    return ACCEPTED_KEY, json.dumps(value, separators=(",", ":")).encode(), None


def decode_accepted_loss(record: ShardRecord) -> AcceptedLoss | None:
    """None: it is none, or nobody can read it."""
    if record.key != ACCEPTED_KEY or record.value is None:
        return None
    try:
        said = json.loads(record.value)
        return AcceptedLoss(int(said["start"]), str(said["token"]))
    except UNREADABLE:
        return None


class LogLosses:
    """What this process knows of the logs of its shards, over all the times that it takes them."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._words: dict[int, AcceptedLoss | None] = {}

    def read(self, shard: int, start: int, end: int, accepted: AcceptedLoss | None) -> str:
        """A log was read, from where it begins up to its end; why nothing may be served from it, "": it may."""
        before = self._words.setdefault(shard, accepted)
        if accepted is not None and accepted != before:
            self._ends.pop(shard, None)
        self._words[shard] = accepted
        self._starts[shard] = start
        if start > (0 if accepted is None else accepted.start):
            return f"its log begins at offset {start}: what was before is deleted"
        known = self._ends.get(shard, 0)
        if end < known:
            return f"its log ends at offset {end}, and it was acknowledged up to {known}"
        return ""

    def acked(self, shard: int, offset: int, count: int, start: int = -1) -> str:
        """So many records were put there; -1: it was not told where. start: where the log begins, by the same answer.
        Why that may not be, "": it may."""
        known = self._ends.get(shard, 0)
        if 0 <= offset < known:
            return f"a batch was put at offset {offset}, and it was acknowledged up to {known}"
        if start > self._starts.get(shard, 0):
            return f"its log begins at offset {start}: what was before is deleted"
        if offset >= 0:
            self._ends[shard] = offset + count
        return ""

    def forget(self) -> None:
        """All logs are others, and an operator has said so."""
        self._starts.clear()
        self._ends.clear()
        self._words.clear()
