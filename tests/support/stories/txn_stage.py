"""What stories can say of transactions.

Over the node's own log: `txn-commit ... producer=N` and `txn-marker`; over a Kafka: `txn-commit`, `txn-written`,
`txn-over`, `txn-end`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import (
    NO_PRODUCER,
    TxnEnded,
    TxnMarkerRead,
    TxnOffsetCommit,
    TxnOffsetsWritten,
    TxnWriteOver,
)
from muster.coordinator.core.model.records import OffsetsStored
from muster.coordinator.core.model.types import RequestId, StoredOffset
from tests.support.stories.classic_stage import instance_from
from tests.support.stories.story import pairs, read_commit, topic_partition


class TxnStage:
    """Mixed into `Stage`. `records` are the log: what a marker brings is put there as well, for a replay finds it."""

    asked: Any
    request: Any
    client: Any
    step: Any
    shard: Any
    records: list[Any]

    def __init__(self) -> None:
        self.allowed: dict[str, tuple[RequestId, str, Mapping[tuple[str, int], StoredOffset]]] = {}
        self.next_word = self.next_group = ""
        self.log_end = 0

    def do_txn_commit(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-commit GROUP NAME [as=WORD | producer=N [epoch=N]] topic-partition=offset[:metadata] ...; NAME `-` says
        nothing of himself.

        `WORD` is how the story speaks of it later; what a producer is named for is kept at once.
        """
        group, name, *rest = words
        nobody = name == "-"
        client = self.client(group, name)
        offsets, options = read_commit(rest)
        self.next_word, self.next_group = options.get("as", name), group
        event = TxnOffsetCommit(
            self.request("txn-commit", client),
            group,
            "" if nobody else options.get("id", client.member_id),
            None if nobody else instance_from(options, client),
            int(options.get("generation", -1 if nobody else client.generation)),
            offsets,
            int(options.get("producer", NO_PRODUCER)),
            int(options.get("epoch", 0)),
        )
        yield from self.asked(event)

    def do_txn_marker(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-marker PRODUCER commit|abort [epoch=N]: the coordinator of transactions has decided."""
        producer, how, *rest = words
        epoch = int(pairs(rest).get("epoch", 0))
        request = self.request("txn-marker", self.client("", "*"))
        yield from self.asked(TxnEnded(request, int(producer), epoch, how == "commit", 0))

    def may_be_written(self, request: RequestId, reply: TxnOffsetCommitReply) -> None:
        self.allowed[self.next_word] = request, self.next_group, reply.kept

    def do_txn_written(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-written WORD PRODUCER: it is in the log, and read there."""
        word, producer = words
        request, group_id, kept = self.allowed.pop(word)
        lines = self.step(TxnOffsetsWritten(int(producer), 0, group_id, kept, self.log_end))
        self.log_end += len(kept)
        yield from [*lines, *self.step(TxnWriteOver(-request, group_id, request))] or ["ok"]

    def do_txn_over(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-over WORD: the log has refused it."""
        request, group_id, _ = self.allowed.pop(words[0])
        yield from self.step(TxnWriteOver(-request, group_id, request)) or ["ok"]

    def do_txn_pending(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-pending PRODUCER GROUP topic-partition=offset ...: what a replay met, and found no marker of."""
        producer, group_id, *rest = words
        offsets = {topic_partition(key): StoredOffset(int(what), -1, "", 0) for key, what in pairs(rest).items()}
        yield from self.step(TxnOffsetsWritten(int(producer), 0, group_id, offsets, self.log_end)) or ["ok"]
        self.log_end += len(offsets)

    def do_txn_end(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """txn-end PRODUCER commit|abort [only=g/t-0,...] [at=OFFSET]: its marker is in the log, at its end if not at
        another place."""
        producer, how, *rest = words
        options = pairs(rest)
        at = int(options.get("at", self.log_end))
        counts = None
        if "only" in options:
            named = [word.partition("/") for word in options["only"].split(",") if word]
            counts = frozenset((group, *topic_partition(place)) for group, _, place in named)
        waiting = self.shard.state.pending.of.get(int(producer), {}) if how == "commit" else {}
        found = {
            group: {
                place: [one.value for one in of_group.of_place(place) if one.at < at][-1]
                for place in of_group.values
                if of_group.of_place(place)[0].at < at and (counts is None or (group, *place) in counts)
            }
            for group, of_group in waiting.items()
        }
        self.records += [OffsetsStored(group, offsets) for group, offsets in found.items() if offsets]
        told = [f"{group} {t}-{p}={v.offset}" for group, offsets in found.items() for (t, p), v in offsets.items()]
        lines = self.step(TxnMarkerRead(int(producer), 0, how == "commit", counts, at))
        yield from [*(f"counts {word}" for word in told), *lines] or ["nothing counts"]
