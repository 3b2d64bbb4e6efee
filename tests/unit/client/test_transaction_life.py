"""The life of a producer's transactions, against a model that only counts what may be committed."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muster.client.errors import (
    ClientError,
    IllegalState,
    NotAuthorized,
    ProducerFenced,
    TransactionAborted,
    Unreachable,
    refusal,
)
from muster.client.records.transaction_state import (
    FENCING_AN_END,
    MOVES,
    TransactionLife,
    TransactionPhase,
    build_fenced,
    fences,
    is_not_yet,
)

Phase = TransactionPhase


def begun() -> TransactionLife:
    life = TransactionLife("billing-1")
    life.initialized()
    life.begin()
    return life


def test_a_call_that_does_not_fit_says_what_does() -> None:
    life = TransactionLife("billing-1")
    for call, remedy in (
        (
            life.admit,
            r"produce\(\) of transactional id 'billing-1': init_transactions\(\) has not.*begin\(\) one first",
        ),
        (life.begin_commit, r"commit\(\)"),
        (life.begin_abort, r"abort\(\).*begin\(\) one first"),
    ):
        with pytest.raises(IllegalState, match=remedy):
            call()
    life.initialized()
    life.begin()
    with pytest.raises(IllegalState, match=r"begin\(\) .*a transaction is open; commit\(\) or abort\(\) it first"):
        life.begin()
    with pytest.raises(IllegalState, match="before the first begin"):
        life.check_initialize()


def test_what_failed_cannot_be_committed_and_is_told_until_the_next_begin() -> None:
    life = begun()
    life.admit()
    reason = ClientError("a record was given up")
    life.fail(reason)
    for call in (life.admit, life.begin_commit):
        with pytest.raises(TransactionAborted, match="a record was given up") as told:
            call()
        assert told.value.reason is reason
    assert life.begin_abort()
    life.ended()
    with pytest.raises(TransactionAborted):
        life.begin_commit()
    life.begin()
    life.begin_commit()


def test_an_abort_after_an_abort_for_a_failure_is_harmless_and_any_other_is_none() -> None:
    life = begun()
    life.fail(ClientError("x"))
    assert life.begin_abort()
    life.ended()
    assert not life.begin_abort()
    with pytest.raises(IllegalState, match=r"abort\(\)"):
        life.begin_abort()


def test_a_failure_that_is_heard_of_while_committing_forbids_the_commit() -> None:
    life = begun()
    life.admit()
    life.begin_commit()
    life.fail(ClientError("late"))
    assert life.phase is Phase.FAILED


def test_a_fenced_producer_says_so_for_ever() -> None:
    life = begun()
    fence = life.fence(refusal(90, "PRODUCER_FENCED", "a newer producer has the id"))
    for call in (life.admit, life.check_begin, life.begin_commit, life.begin_abort, life.check_initialize):
        with pytest.raises(ProducerFenced) as told:
            call()
        assert told.value is fence
    life.fail(ClientError("no matter"))
    assert life.phase is Phase.FENCED


def test_an_unknown_outcome_is_settled_before_the_next_transaction() -> None:
    life = begun()
    life.admit()
    life.begin_commit()
    life.unanswered()
    assert life.must_initialize
    with pytest.raises(IllegalState, match="unknown how the last transaction ended; the next begin"):
        life.begin_abort()
    life.initialized()
    life.begin()
    assert not life.used


@pytest.mark.parametrize("code", [49, 90, 53])
def test_errors_that_fence(code: int) -> None:
    error = refusal(code, "X", "words")
    assert fences(error)
    assert isinstance(build_fenced(error), ProducerFenced)


def test_an_error_means_what_its_request_makes_of_it() -> None:
    ended = refusal(48, "INVALID_TXN_STATE", "the transaction timed out")
    assert not fences(ended)
    assert fences(ended, FENCING_AN_END)
    fenced = build_fenced(ended)
    assert (type(fenced), fenced.code, str(fenced)) == (
        ProducerFenced,
        48,
        "INVALID_TXN_STATE: the transaction timed out",
    )
    assert isinstance(refusal(53, "X", ""), NotAuthorized)
    assert all(is_not_yet(refusal(code, "X", "")) for code in (14, 15, 16, 19, 51))
    assert is_not_yet(Unreachable("node:1", 1, "committing"))
    assert not is_not_yet(refusal(120, "X", ""))


class LifeAgainstModel(RuleBasedStateMachine):
    """The model: whether one is open, whether it has failed, whether the producer is fenced, what is unresolved."""

    def __init__(self) -> None:
        super().__init__()
        self.life = TransactionLife("t")
        self.open = self.failed = self.fenced = self.unresolved = self.used = self.told = False
        self.initialized = False

    def expect(self, call: Any, *, fits: bool, aborted: bool = False) -> bool:
        """Whether the call went through, which must be as the model says."""
        wanted: type[Exception] | None = None
        if self.fenced:
            wanted = ProducerFenced
        elif aborted:
            wanted = TransactionAborted
        elif not fits:
            wanted = IllegalState
        if wanted is None:
            call()
            return True
        with pytest.raises(wanted):
            call()
        return False

    @rule()
    def begin(self) -> None:
        def call() -> None:
            self.life.check_begin()
            if self.life.must_initialize:
                self.life.initialized()
            self.life.begin()

        if self.expect(call, fits=not self.open):
            self.open, self.initialized = True, True
            self.unresolved = self.used = self.told = False

    @rule()
    def produce(self) -> None:
        if self.expect(self.life.admit, fits=self.open, aborted=(self.open and self.failed) or self.told):
            self.used = True

    @rule(outcome=st.sampled_from(["committed", "unanswered", "fenced", "failed meanwhile"]))
    def commit(self, outcome: str) -> None:
        if not self.expect(self.life.begin_commit, fits=self.open, aborted=(self.open and self.failed) or self.told):
            return
        assert not self.failed, "what failed is never committed"
        if outcome == "failed meanwhile":
            self.life.fail(ClientError("meanwhile"))
            self.failed = True
            return
        self.open = False
        if outcome == "committed":
            self.life.ended()
        elif outcome == "unanswered":
            self.life.unanswered()
            self.unresolved = True
        else:
            self.life.fence(refusal(90, "X", ""))
            self.fenced = True

    @rule(outcome=st.sampled_from(["aborted", "unanswered", "fenced"]))
    def abort(self, outcome: str) -> None:
        begun: list[bool] = []
        if not self.expect(lambda: begun.append(self.life.begin_abort()), fits=self.open or self.told):
            return
        assert begun == [self.open]
        if not self.open:
            self.told = False
            return
        self.told, self.failed, self.open = self.failed, False, False
        if outcome == "aborted":
            self.life.ended()
        elif outcome == "unanswered":
            self.life.unanswered()
            self.unresolved = True
        else:
            self.life.fence(refusal(90, "X", ""))
            self.fenced = True

    @rule()
    def fail(self) -> None:
        self.life.fail(ClientError("a record was given up"))
        self.failed |= self.open and not self.fenced

    @precondition(lambda self: self.open)
    @rule()
    def fence(self) -> None:
        self.life.fence(refusal(49, "X", ""))
        self.fenced = True

    @invariant()
    def agrees(self) -> None:
        if self.fenced:
            assert self.life.phase is Phase.FENCED
            return
        assert (self.life.phase in (Phase.OPEN, Phase.FAILED)) == self.open
        assert (self.life.phase is Phase.FAILED) == (self.open and self.failed)
        assert self.life.must_initialize == (self.unresolved or not self.initialized)
        if self.open:
            assert self.life.used == self.used


TestLifeAgainstModel = LifeAgainstModel.TestCase
TestLifeAgainstModel.settings = settings(max_examples=100, stateful_step_count=30)


def test_every_phase_but_the_last_can_be_left_and_none_is_out_of_reach() -> None:
    assert set(MOVES) == set(Phase)
    reached = {Phase.UNINITIALIZED}
    while (more := reached | {to for phase in reached for to in MOVES[phase]}) != reached:
        reached = more
    assert reached == set(Phase)
    assert [phase for phase, targets in MOVES.items() if targets <= {phase}] == [Phase.FENCED]
