"""The simulator's model of a log takes in and refuses what the log does, and shows the same of it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.storage.errors import StorageError
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.transactions import TransactionGuard
from tests.fakes.memory_files import MemoryFiles
from tests.sim.transactions.logs import DataBatch, Guard, LogModel, MarkerBatch
from tests.unit.storage.logs import T0, batch, open_broker

PRODUCER = st.sampled_from([4, 5])
EPOCH = st.integers(0, 3)
LEVEL = st.sampled_from([0, 2])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("guard"), PRODUCER, EPOCH, LEVEL),
        st.tuples(st.just("data"), PRODUCER, st.integers(-1, 1), st.sampled_from([0, 0, 0, 1, -1]), st.integers(0, 3)),
        st.tuples(st.just("first"), PRODUCER, EPOCH, LEVEL),
        st.tuples(st.just("marker"), PRODUCER, st.integers(-1, 1), st.booleans(), LEVEL, st.integers(0, 1)),
        st.tuples(st.just("flush")),
    ),
    max_size=30,
)


class BothLogs:
    """The log and its model, side by side."""

    def __init__(self) -> None:
        self.broker = open_broker(MemoryFiles())
        self.broker.create_topic("t", 1)
        self.log: Log = self.broker.log("t", 0)
        self.model = LogModel()
        self.guards: list[tuple[TransactionGuard | None, Guard, int]] = []

    def epoch_of(self, producer_id: int) -> int:
        known = self.model.producers.get(producer_id)
        return 0 if known is None else known.epoch

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        known = self.model.producers.get(producer_id)
        return known.batches[-1][0] + 1 if known and known.epoch == epoch and known.batches else 0

    def guard(self, producer_id: int, epoch: int, level: int) -> int:
        ours = self.log.make_guard(producer_id, epoch, sequence=-1, level=level)
        self.guards.append((ours, self.model.guard(producer_id, epoch), level))
        return len(self.guards) - 1

    def data(self, producer_id: int, epoch: int, sequence: int, which: int) -> tuple[Any, Any]:
        """(error, offset) of the log, and of the model."""
        ours, theirs, level = self.guards[which] if 0 <= which < len(self.guards) else (None, None, 0)
        sent = DataBatch(producer_id, epoch, sequence, None)
        expected = self.model.append_data(sent, theirs, level)
        written = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        return self.outcome(lambda: self.log.append(written, T0, guard=ours).base_offset), expected

    def marker(self, marker: MarkerBatch) -> tuple[Any, Any]:
        expected = self.model.append_marker(marker)
        fields = (marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.level)
        return self.outcome(lambda: self.log.append_marker(MarkerToWrite(*fields), T0).base_offset), expected

    def outcome(self, append: Any) -> tuple[int, int]:
        try:
            return 0, append()
        except StorageError as error:
            return int(error.code), -1

    def play(self, event: tuple[Any, ...]) -> tuple[Any, Any]:
        match event:
            case ("guard", int(producer_id), int(epoch), int(level)):
                self.guard(producer_id, epoch, level)
            case ("data", int(producer_id), int(off), int(skip), int(which)):
                epoch = max(self.epoch_of(producer_id) + off, 0)
                sequence = max(self.next_sequence(producer_id, epoch) + skip, 0)
                return self.data(producer_id, epoch, sequence, len(self.guards) - 1 - which)
            case ("first", int(producer_id), int(epoch), int(level)):
                which = self.guard(producer_id, epoch, level)
                return self.data(producer_id, epoch, self.next_sequence(producer_id, epoch), which)
            case ("marker", int(producer_id), int(off), bool(commit), int(level), int(coordinator_epoch)):
                epoch = max(self.epoch_of(producer_id) + off, 0)
                return self.marker(MarkerBatch(producer_id, epoch, commit, coordinator_epoch, level))
            case _:
                self.log.flush()
                self.model.durable = len(self.model.batches)
        return None, None


@settings(max_examples=300)
@given(EVENTS)
def test_the_model_does_what_the_log_does(events: list[tuple[Any, ...]]) -> None:
    both = BothLogs()
    for event in events:
        said, expected = both.play(event)
        assert said == expected, event
        assert both.log.last_stable_offset == both.model.stable()
        still_open = sorted((each.producer_id, each.epoch) for each in both.log.open_transactions())
        assert still_open == both.model.open_transactions()
