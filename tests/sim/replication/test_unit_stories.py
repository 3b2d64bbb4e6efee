"""Stories of what random schedules meet too seldom: each is told with the machines as they are, where all is well, and
with one that lacks the rule, which a checker catches."""

from collections.abc import Callable

import pytest

from tests.sim.replication.abstract.checkers import Violation
from tests.sim.replication.abstract.mutants import MUTANTS
from tests.sim.replication.abstract.node import LAG_MS, SESSION_MS
from tests.sim.replication.abstract.stage import Stage
from tests.sim.replication.abstract.world import CONTROLLER

pytestmark = pytest.mark.sim


def out_of_sync(stage: Stage, node: int) -> None:
    """The other two go on without it; it lives."""
    stage.isolate(node)
    stage.goes_by(SESSION_MS - 200)
    stage.rounds(6, 100)
    assert node not in stage.controller.state.isr


def asked_to_join(stage: Stage) -> None:
    """CL-G4: the one whose joining was asked for leads next, and owed the leader no silence."""
    out_of_sync(stage, 2)
    stage.held = lambda message: message.to == 1 and message.body[0] in ("altered", "image")
    stage.heal(2, CONTROLLER, 1, 3)
    stage.rounds(4, 100)
    assert stage.controller.state.isr == (1, 2, 3)
    assert stage.node(1).leader.isr == (1, 3)
    stage.drop("altered")
    stage.drop("image")
    stage.held = lambda message: message.to == 3 and message.body[0] == "image"
    stage.cut_off(1, CONTROLLER, 2)
    for _ in range(13):
        stage.rounds(1, 500)
    assert stage.node(2).leader is not None
    stage.held = lambda _message: False
    stage.cut_off(1, 3)
    stage.rounds(4, 10)
    assert stage.answering == [2]


def two_before(stage: Stage) -> None:
    """CL-G5a: the leader before the last may hold its lease still; that the last one has let go says nothing of it."""
    stage.rounds(4, 100)
    assert stage.answering == [1]
    stage.node(1).frozen = True
    stage.controller.hand_over()
    stage.rounds(3, 10)
    stage.controller.hand_over()
    stage.rounds(3, 10)
    assert stage.node(3).leader is not None
    for _ in range((LAG_MS + 600) // 200):
        stage.rounds(1, 200)
        stage.act_all("ask_former")
    assert stage.controller.state.isr == (2, 3)
    stage.isolate(1)
    stage.node(1).frozen = False
    stage.check.step()
    assert stage.answering == [1]


def clocks_apart(stage: Stage) -> None:
    """CL-G4: the leader's clock is a slow one, that of the next leader a fast one."""
    stage.node(1).rate, stage.node(2).rate = 0.99, 1.01
    stage.rounds(4, 100)
    stage.cut_off(1, CONTROLLER)
    stage.rounds(1, 500)
    stage.fetches(3)
    stage.isolate(1)
    stage.rounds(11, 500)
    stage.rounds(1, 50)
    assert stage.node(2).leader is not None
    stage.rounds(24, 25)
    assert stage.answering == [2]


def former_life(stage: Stage) -> None:
    """CL-G5: whom a node fetched from before it was started anew is not known, so it counts from its start."""
    out_of_sync(stage, 3)
    stage.cut_off(1, CONTROLLER)
    for _ in range(9):
        stage.rounds(1, 500)
    stage.isolate(1)
    stage.heal(3, CONTROLLER, 2)
    stage.node(2).die()
    stage.start(2)
    stage.rounds(4, 500)
    assert stage.node(2).leader is not None
    assert stage.controller.state.isr == (2, 3)
    stage.rounds(4, 100)
    assert stage.answering == [1]


def without_its_disk(stage: Stage) -> None:
    """CL-L5: who was in sync when the epoch began, and has lost his disk since, has all that the leader knows to be
    committed, which is nothing; and not what was there when its epoch began."""
    stage.cut_off(3, CONTROLLER)
    stage.rounds(12, 490)
    stage.do(1, "produce", "flush")
    for _ in range(2):
        stage.do(2, "fetch", "flush")
        stage.do(3, "fetch", "flush")
    assert (stage.node(1).leader.high_watermark, stage.node(2).follower.high_watermark) == (1, 0)
    stage.do(1, "release")
    stage.node(1).frozen = True
    stage.controller.hand_over()
    stage.image()
    stage.lose_disk(3)
    stage.goes_by(200)
    stage.heal(3, CONTROLLER)
    stage.image()
    stage.start(3)
    stage.image()
    stage.do(3, "fetch")
    assert stage.node(2).leader.isr == (1, 2)
    stage.do(2, "look")


def a_question_on_its_way(stage: Stage) -> None:
    """CL-L5: a question that nobody answered is done after a later one was refused."""
    out_of_sync(stage, 3)
    stage.held = lambda message: message.body[0] == "alter"
    stage.heal(3, CONTROLLER, 1, 2)
    stage.rounds(4, 100)
    [first] = [message for message in stage.messages if message.body[0] == "alter"]
    stage.node(1).give_up_asking()
    stage.controller.drain(3, begins=True)
    stage.held = lambda message: message is first
    stage.goes_by(200)
    stage.act_all("look")
    stage.goes_by(200)
    stage.image()
    stage.act_all("look")
    stage.isolate(3)
    stage.goes_by(LAG_MS + 100)
    stage.fetches(2)
    stage.controller.drain(3, begins=False)
    stage.act_all("produce", "flush", "fetch", "unpark", "flush", "fetch", "unpark", "look")
    stage.held = lambda _message: False
    stage.deliver_all()


def a_fetch_of_a_former_life(stage: Stage) -> None:
    """CL-L4: what a node had before it lost its disk comes late, and is not what it has now."""
    stage.rounds(4, 100)
    stage.act_all("produce", "produce", "flush")
    stage.fetches(3)
    stage.held = lambda message: message.sender == 3 and message.body[0] == "fetch"
    stage.act_all("fetch")
    stage.lose_disk(3)
    stage.goes_by(SESSION_MS + 100)
    stage.start(3)
    stage.image()
    assert stage.controller.state.isr == (1, 2)
    stage.held = lambda message: message.to == 3
    stage.act_all("look")
    stage.deliver_all()
    stage.act_all("look")


def an_expansion_on_its_way(stage: Stage) -> None:
    """CL-C8: between the question and the answer the node that was to join lost its disk."""
    out_of_sync(stage, 3)
    stage.act_all("produce", "flush")
    stage.fetches(3)
    stage.held = lambda message: message.body[0] == "alter"
    stage.heal(3, CONTROLLER, 1, 2)
    stage.rounds(5, 100)
    assert any(message.body[0] == "alter" for message in stage.messages)
    stage.lose_disk(3)
    del stage.registered[3]
    stage.start(3)
    while stage.controller.look():
        pass
    stage.held = lambda _message: False
    stage.deliver_all()


def an_epoch_without_records(stage: Stage) -> None:
    """CL-L1: one who led and wrote nothing copies records of an epoch before his own. He has to know where that began,
    or he takes another log for the same as his, once he leads again (seed 3824)."""
    stage.controller.hand_over(2)
    stage.rounds(3, 10)
    stage.do(2, "produce", "flush")
    stage.fetches(3)
    stage.do(2, "produce", "flush")
    stage.controller.hand_over(3)
    stage.image()
    stage.controller.hand_over(2)
    stage.image()
    assert stage.node(3).log.epochs == [(1, 0), (2, 1)]
    stage.fetches(2)
    assert stage.node(3).log.end == 2
    stage.check.logs()
    assert stage.node(3).log.epochs == [(1, 0)]


def shown_a_later_epoch(stage: Stage) -> None:
    """CL-L9: a leader that no image tells so learns of the next one by being asked whether it has let go."""
    stage.held = lambda message: message.to == 1 and message.body[0] == "image"
    stage.controller.hand_over(2)
    for _ in range((LAG_MS + 600) // 200):
        stage.rounds(1, 200)
    assert stage.controller.state.isr == (2, 3)
    assert stage.answering == [1]
    stage.act_all("ask_former")
    stage.check.step()
    assert stage.answering == [2]


STORIES: dict[str, Callable[[Stage], None]] = {
    "lease without those asked to join": asked_to_join,
    "only the last leader is to let go": two_before,
    "lease as long as a session": clocks_apart,
    "own start does not count": former_life,
    "join before the epoch's start": without_its_disk,
    "a later refusal settles an earlier question": a_question_on_its_way,
    "the committed set is no question": a_question_on_its_way,
    "an older epoch begins anew": an_epoch_without_records,
    "a later epoch shown is ignored": shown_a_later_epoch,
    "node epoch ignored in fetch": a_fetch_of_a_former_life,
    "node epochs in AlterPartition ignored": an_expansion_on_its_way,
}


@pytest.mark.parametrize("story", sorted(set(STORIES.values()), key=lambda each: each.__name__))
def test_the_story_ends_well(story: Callable[[Stage], None]) -> None:
    stage = Stage()
    story(stage)
    stage.held = lambda _message: False
    stage.end()


@pytest.mark.parametrize("mutant", STORIES)
def test_without_the_rule_it_does_not(mutant: str) -> None:
    stage = Stage(*MUTANTS[mutant])
    with pytest.raises(Violation):
        STORIES[mutant](stage)
