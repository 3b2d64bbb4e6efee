"""The machine against a small model of one transactional id, over random events; replay equals live after each."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.transactions.events import TerminateTransaction
from muster.coordinator.transactions.records import MOVES, TransactionState, TransactionStored
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from tests.support.transactions import TIMEOUT_MS, Desk

ENDS = {"commit": "CompleteCommit", "abort": "CompleteAbort"}
BY_EPOCH = {  # (state, what): with the epoch before, with the current one
    ("Empty", "abort"): (90, "empty"),
    ("Empty", "commit"): (90, 48),
    ("CompleteAbort", "abort"): (0, "empty"),
    ("CompleteAbort", "commit"): (48, 48),
    ("CompleteCommit", "abort"): (48, "empty"),
    ("CompleteCommit", "commit"): (0, 48),
    ("Ongoing", "abort"): (90, "end"),
    ("Ongoing", "commit"): (90, "end"),
}


class Model:
    """What one id is, and what it answers: (code, producer id, epoch), or None for a request that waits."""

    def __init__(self) -> None:
        self.state, self.pid, self.epoch, self.parts = "", -1, -1, set[int]()
        self.last, self.before, self.next, self.fencing, self.ending = -1, -1, -1, False, ""
        self.waiting: list[tuple[int, Any]] = []
        self.late: dict[int, tuple[int, int, int]] = {}

    def init(self, number: int, given: tuple[int, int] | None, fresh: int) -> tuple[int, int, int] | None:
        if not self.state:
            self.state, self.pid, self.epoch, self.before = "Empty", fresh, 0, fresh
            return 0, fresh, 0
        if self.ending:
            self.waiting.append((number, lambda: self.init(number, given, fresh)))
            return None
        if given not in (None, (self.pid, self.epoch)):
            assert given is not None
            known = given[0] == self.pid or (given[0] == self.before and given[1] == 32_766 and self.epoch == 0)
            if self.state == "Ongoing" or not known or given[1] != self.last:
                return 90, -1, -1
            return 0, self.pid, self.epoch
        if self.state == "Ongoing":
            self.raise_and_abort(fresh, fencing=given is None)
            return self.init(number, given, fresh)
        self.last, self.fencing = self.epoch if given else -1, False
        self.before = self.pid
        self.pid, self.epoch = (fresh, 0) if self.epoch == 32_766 else (self.pid, self.epoch + 1)
        self.state = "Empty"
        return 0, self.pid, self.epoch

    def raise_and_abort(self, fresh: int, *, fencing: bool) -> None:
        self.last, self.fencing = -1 if fencing else self.epoch, fencing
        self.decide("abort", self.epoch + 1, fresh)

    def decide(self, what: str, epoch: int, fresh: int) -> None:
        self.state, self.ending, self.epoch, self.before = "Prepare" + what.title(), what, epoch, self.pid
        self.next = fresh if epoch == 32_767 else -1
        if not self.parts:
            self.complete()

    def complete(self) -> None:
        self.state, self.ending, self.before = ENDS[self.ending], "", self.pid
        self.parts.clear()
        if self.next >= 0:
            self.pid, self.epoch, self.next = self.next, 0, -1
        waiting, self.waiting = self.waiting, []
        for number, again in waiting:
            if (answer := again()) is not None:
                self.late[number] = answer

    def add(self, pid: int, epoch: int, part: int) -> tuple[int, int, int]:
        code = 49 if not self.state else 51 if self.ending else 49 if pid != self.pid else 90
        if not self.state or self.ending or (pid, epoch) != (self.pid, self.epoch):
            return code, -1, -1
        if self.state != "Ongoing" or part not in self.parts:
            self.before = self.pid
        self.state = "Ongoing"
        self.parts.add(part)
        return 0, -1, -1

    def end(self, pid: int, epoch: int, what: str, raised: bool, fresh: int) -> tuple[int, int, int]:
        if not self.state:
            return 49, -1, -1
        if raised and self.ending:
            return 51, -1, -1
        old = raised and (
            (pid, epoch) == (self.pid, self.epoch - 1) or ((pid, epoch, self.epoch) == (self.before, 32_766, 0))
        )
        if (pid, epoch) != (self.pid, self.epoch) and not old:
            return 90 if pid == self.pid else 49, -1, -1
        if self.ending:
            return 51, -1, -1
        if raised:
            meaning = 90 if old and self.fencing else BY_EPOCH[self.state, what][not old]
        else:
            meaning = "end" if self.state == "Ongoing" else 0 if self.state == ENDS[what] else 48
        if isinstance(meaning, int) and meaning:
            return meaning, -1, -1
        if meaning:
            self.fencing, self.last = False, self.epoch if raised else self.last
            next_epoch = self.epoch + 1 if raised else self.epoch
            given = (fresh, 0) if next_epoch == 32_767 else (self.pid, next_epoch)
            self.decide(what, next_epoch, fresh)
            return 0, *given
        return 0, self.pid, self.epoch

    def forget_soft(self) -> None:
        self.last, self.fencing, self.waiting = -1, False, []


EPOCH = st.sampled_from([0, 0, 0, -1, -2, 1])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.none() | EPOCH),
        st.tuples(st.just("add"), EPOCH, st.integers(0, 2)),
        st.tuples(st.just("add"), st.just(0), st.integers(0, 2)),
        st.tuples(st.just("end"), EPOCH, st.sampled_from(["commit", "abort"]), st.booleans()),
        st.tuples(st.just("end"), st.just(0), st.sampled_from(["commit", "abort"]), st.booleans()),
        st.tuples(st.just("old"), st.sampled_from(["init", "commit", "abort"])),
        st.tuples(st.just("markers")),
        st.tuples(st.just("terminate")),
        st.tuples(st.just("timeout")),
        st.tuples(st.just("crash")),
    ),
    min_size=1,
    max_size=30,
)


def outline(answer: Any) -> tuple[int, int, int] | None:
    if answer is None:
        return None
    return int(answer.code), getattr(answer, "producer_id", -1), getattr(answer, "epoch", -1)


def replayed(desk: Desk) -> dict[str, TransactionStored]:
    shard = TransactionShard(desk.limits, 0)
    for record in desk.log:
        shard.apply(record)
    return {name: known.stored for name, known in shard.state.ids.items()}


def start_at(desk: Desk, model: Model, epoch: int) -> None:
    """The id is there already, at that epoch."""
    stored = TransactionStored("A", 7, epoch, TIMEOUT_MS, TransactionState.EMPTY, previous_producer_id=7)
    desk.log.append(stored)
    desk.reload()
    model.state, model.pid, model.epoch, model.before = "Empty", 7, epoch, 7


def play(event: tuple[Any, ...], desk: Desk, model: Model) -> tuple[Any, Any]:
    """What the machine answers, and what the model does."""
    number, fresh = desk.requests + 1, desk.fresh + 1
    match event:
        case ("init", None):
            return outline(desk.init()), model.init(number, None, fresh)
        case ("init", int(off)):
            given = (model.pid, max(model.epoch + off, 0))
            answer = desk.init("A", *given) if model.state else desk.init()
            return outline(answer), model.init(number, given if model.state else None, fresh)
        case ("add", int(off), int(part)):
            pid, epoch = model.pid, model.epoch + off
            return outline(desk.add(pid, epoch, ("t", part))), model.add(pid, epoch, part)
        case ("end", int(off), str(what), bool(raised)):
            pid, epoch = model.pid, model.epoch + off
            answer = desk.end(pid, epoch, what == "commit", level=2 if raised else 0)
            said = model.end(pid, epoch, what, raised, fresh)
            return outline(answer), said
        case ("old", "init") if model.state:
            given = (model.before, 32_766)
            return outline(desk.init("A", *given)), model.init(number, given, fresh)
        case ("old", str(what)) if what != "init":
            answer = desk.end(model.before, 32_766, what == "commit", level=2)
            return outline(answer), model.end(model.before, 32_766, what, True, fresh)
        case ("markers",) if model.ending:
            desk.write_markers()
            model.complete()
        case ("terminate",) if model.state:
            answer = outline(desk.request(TerminateTransaction, "A", desk.draw()))
            said = model.init(number, None, fresh)
            return answer and answer[0], said and said[0]
        case ("timeout",):
            if model.state == "Ongoing" and model.epoch < 32_766:
                model.raise_and_abort(-1, fencing=False)
                desk.wait(TIMEOUT_MS + 20_000)
            elif model.state != "Ongoing":
                for waiting, _ in model.waiting:
                    model.late[waiting] = (51, -1, -1)
                model.waiting = []
                desk.wait(TIMEOUT_MS)
        case ("crash",):
            model.forget_soft()
            desk.reload()
    return None, None


@settings(max_examples=500)
@given(EVENTS, st.sampled_from([0, 32_764]))
def test_the_machine_does_what_the_model_does(events: list[tuple[Any, ...]], first_epoch: int) -> None:
    desk, model = Desk(TransactionLimits(newest_connection=False)), Model()
    if first_epoch:
        start_at(desk, model, first_epoch)
    for event in events:
        said, expected = play(event, desk, model)
        assert said == expected
        for number, late in model.late.items():
            answer = outline(desk.answers[number])
            assert answer is not None
            assert answer[0] == late[0]
            assert answer[1:] in (late[1:], (-1, -1)), "an operator is told no producer id"
        if model.state:
            assert desk.told() == (model.state, model.pid, model.epoch)
            assert desk.stored().partitions == ({"t": tuple(sorted(model.parts))} if model.parts else {})
        assert replayed(desk) == {name: known.stored for name, known in desk.shard.state.ids.items()}
    for before, after in zip(desk.log, desk.log[1:], strict=False):
        assert isinstance(before, TransactionStored)
        assert isinstance(after, TransactionStored)
        assert before.state in MOVES[after.state]
