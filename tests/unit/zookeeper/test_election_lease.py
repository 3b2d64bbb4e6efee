"""How long a candidate may think itself elected, on a virtual clock and against a ZooKeeper of one page."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.zookeeper.election import ElectionCandidate
from muster.coordinator.zookeeper.session import SessionState
from tests.fakes.one_page_zookeeper import COUNTER, PLACE, SESSION_S, Line, Server, on_virtual_time


def candidate(line: Line, told: list[tuple[float, int]] | None = None, *, resume: bool = True) -> ElectionCandidate:
    loop, notes = asyncio.get_running_loop(), [] if told is None else told
    election = ElectionCandidate(
        line,  # type: ignore[arg-type]
        PLACE,
        lambda: b"me",
        epoch_path=COUNTER,
        on_elected=lambda term: notes.append((loop.time(), term.epoch)),
        on_resigned=lambda: notes.append((loop.time(), 0)),
        resume=resume,
    )
    election.start()
    return election


def test_a_line_that_is_cut_unnoticed_ends_the_term_within_two_thirds_of_a_session() -> None:
    """CL-Z8: kazoo says SUSPENDED after up to two thirds of a session; counted from there, one would act for 1.67. A
    whole session from the last proof would be the moment at which ZooKeeper lets the next one in."""

    async def story() -> None:
        told: list[tuple[float, int]] = []
        line = Line(Server(), 1)
        election = candidate(line, told)
        await asyncio.sleep(SESSION_S * 2.5)
        assert [epoch for _, epoch in told] == [1]  # it goes on as long as there are answers
        line.cut, cut_s = True, asyncio.get_running_loop().time()
        await asyncio.sleep(SESSION_S * 2 / 3)
        line.become(SessionState.SUSPENDED)
        await asyncio.sleep(SESSION_S)
        assert [epoch for _, epoch in told] == [1, 0]
        assert told[1][0] <= cut_s + SESSION_S * 2 / 3
        line.become(SessionState.CONNECTED)
        await asyncio.sleep(1)
        assert [epoch for _, epoch in told] == [1, 0, 1]  # its session had not ended: still the same term
        await election.stop()

    on_virtual_time(story())


def test_a_line_that_comes_back_in_time_ends_nothing() -> None:
    async def story() -> None:
        told: list[tuple[float, int]] = []
        line = Line(Server(), 1)
        election = candidate(line, told)
        await asyncio.sleep(1)
        line.become(SessionState.SUSPENDED)
        await asyncio.sleep(SESSION_S / 2)
        line.become(SessionState.CONNECTED)
        await asyncio.sleep(SESSION_S * 3)
        assert [epoch for _, epoch in told] == [1]
        await election.stop()

    on_virtual_time(story())


def test_one_that_another_was_elected_over_resigns_at_the_next_proof() -> None:
    """Its own line is fine and no watch fires: the counter says it."""

    async def story() -> None:
        told: list[tuple[float, int]] = []
        server = Server()
        election = candidate(Line(server, 1), told)
        await asyncio.sleep(1)
        server.nodes[PLACE] = server.nodes[PLACE]._replace(data=b"you", owner=2)
        server.nodes[COUNTER] = server.nodes[COUNTER]._replace(data=b"2", version=2)
        over_s = asyncio.get_running_loop().time()
        await asyncio.sleep(SESSION_S / 2)
        assert [epoch for _, epoch in told] == [1, 0]
        assert told[1][0] <= over_s + SESSION_S / 6 + 0.1
        assert election.term is None
        await election.stop()

    on_virtual_time(story())


def test_a_process_that_slept_through_its_lease_does_not_think_itself_elected() -> None:
    """What runs first when it wakes may run before the loop has said that the lease is over."""

    async def story() -> None:
        election = candidate(Line(Server(), 1))
        await asyncio.sleep(1)
        assert election.term is not None
        loop: Any = asyncio.get_running_loop()
        loop._selector.now_s += SESSION_S  # nothing of the loop has run yet
        assert election.term is None
        await election.stop()

    on_virtual_time(story())


def test_a_term_goes_on_though_two_proofs_in_a_row_are_lost() -> None:
    """CL-Z8: one goes out every sixth of a session, whatever became of the last, and the belief lasts four of these."""

    async def story() -> None:
        told: list[tuple[float, int]] = []
        line = Line(Server(), 1)
        election = candidate(line, told)
        await asyncio.sleep(1)
        for _ in range(4):
            line.cut = True
            await asyncio.sleep(SESSION_S / 3)
            line.cut = False
            await asyncio.sleep(SESSION_S)
        assert [epoch for _, epoch in told] == [1]
        await election.stop()

    on_virtual_time(story())


def test_a_write_of_the_term_that_was_answered_proves_it() -> None:
    async def story() -> None:
        told: list[tuple[float, int]] = []
        line = Line(Server(), 1)
        election = candidate(line, told)
        await asyncio.sleep(1)
        line.cut = True
        await asyncio.sleep(SESSION_S / 2)
        wrote_s = asyncio.get_running_loop().time()
        election.proved(wrote_s)
        election.proved(wrote_s - 1)  # one that was sent before says nothing new
        await asyncio.sleep(SESSION_S)
        assert told[1] == (wrote_s + SESSION_S * 2 / 3, 0)
        await election.stop()

    on_virtual_time(story())


def test_who_gives_its_term_up_begins_the_next_with_an_epoch_of_its_own() -> None:
    """A controller numbers its writes within its epoch: one whose answer came too late would count as the next."""

    async def story() -> None:
        told: list[tuple[float, int]] = []
        line = Line(Server(), 1)
        election = candidate(line, told, resume=False)
        await asyncio.sleep(1)
        line.cut = True
        await asyncio.sleep(SESSION_S)
        line.become(SessionState.CONNECTED)
        await asyncio.sleep(SESSION_S)
        assert [epoch for _, epoch in told] == [1, 0, 2]
        election.resign("it says so itself")
        assert election.term is None
        await asyncio.sleep(1)
        assert [epoch for _, epoch in told] == [1, 0, 2, 0, 3]
        await election.stop()

    on_virtual_time(story())


def test_one_whose_process_is_gone_is_deposed_at_once() -> None:
    """CL-C9: its session is still there, and nobody waits for its end. An epoch that is not the present one deposes
    nobody."""

    async def story() -> None:
        first: list[tuple[float, int]] = []
        second: list[tuple[float, int]] = []
        server = Server()
        one = candidate(Line(server, 1), first)
        await asyncio.sleep(1)
        two = candidate(Line(server, 2), second)
        await asyncio.sleep(1)
        assert second == []
        two.depose(7)
        await asyncio.sleep(1)
        assert second == []
        two.depose(1)
        await asyncio.sleep(0.1)
        assert [epoch for _, epoch in second] == [2]
        await asyncio.sleep(SESSION_S / 6)
        assert [epoch for _, epoch in first] == [1, 0]
        assert server.nodes[PLACE].owner == 2
        await one.stop()
        assert server.nodes[PLACE].owner == 2  # what it leaves when it stops is not another's place
        await two.stop()
        assert PLACE not in server.nodes

    on_virtual_time(story())


@pytest.mark.parametrize("resume", [True, False])
def test_whoever_is_elected_again_after_the_place_was_deleted_by_hand_stays_elected(resume: bool) -> None:
    """As `delete /controller`: operators do it to have another controller. The proofs of the term that ended must not
    judge the next one."""

    async def story() -> None:
        told: list[tuple[float, int]] = []
        server = Server()
        election = candidate(Line(server, 1), told, resume=resume)
        await asyncio.sleep(1)
        server.apply([("delete", PLACE, -1)])
        await asyncio.sleep(SESSION_S * 5)
        assert [epoch for _, epoch in told] == [1, 0, 2]
        assert election.term is not None
        assert election.term.epoch == 2
        await election.stop()

    on_virtual_time(story())
