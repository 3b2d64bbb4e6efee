"""Elections against a real server: one at a time, each with an epoch, and nobody rules past the session."""

import asyncio
from collections.abc import Callable

import pytest

from muster.coordinator.zookeeper.election import ElectedTerm, ElectionCandidate
from muster.coordinator.zookeeper.errors import BadVersion
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_session import expire, session

PLACE, COUNTER = "/somewhere/controller", "/controller_epoch"


class Candidate:
    """A candidate, and what it was told: an epoch for each election, 0 for each resignation."""

    def __init__(self, zk: ZooKeeperSession, name: str) -> None:
        self.told: list[int] = []
        self._changed = asyncio.Event()
        self.election = ElectionCandidate(
            zk,
            PLACE,
            name.encode,
            epoch_path=COUNTER,
            on_elected=lambda term: self._note(term.epoch),
            on_resigned=lambda: self._note(0),
        )
        self.election.start()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def elected(self, epoch: int) -> None:
        await self.until(lambda: self.election.term is not None and self.election.term.epoch == epoch)

    def _note(self, epoch: int) -> None:
        self.told.append(epoch)
        self._changed.set()


def test_the_next_one_takes_over_with_the_next_epoch(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two:
            first = Candidate(one, "first")
            await first.elected(1)
            second = Candidate(two, "second")
            assert await second.election.holder() == b"first"
            await first.election.stop()
            await second.elected(2)
            assert first.told == [1, 0]
            assert await second.election.holder() == b"second"
            await second.election.stop()
            assert await first.election.holder() is None

    run(story)


def test_one_whose_session_expired_resigns_and_stands_again(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two:
            first = Candidate(one, "first")
            await first.elected(1)
            second = Candidate(two, "second")
            await asyncio.to_thread(expire, one)
            await second.elected(2)
            await first.until(lambda: first.told == [1, 0])
            await second.election.stop()
            await first.elected(3)
            await first.election.stop()

    run(story)


def test_an_order_of_an_earlier_term_is_refused(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two:
            first = Candidate(one, "first")
            await first.elected(1)
            stale = first.election.term
            assert stale == ElectedTerm(1, 1)
            await first.election.stop()
            second = Candidate(two, "second")
            await second.elected(2)
            with pytest.raises(BadVersion):
                await one.commit(lambda t: (t.check(COUNTER, stale.version), t.create("/order", b"")))
            assert not await one.exists("/order")
            await second.election.stop()

    run(story)


def test_one_that_hears_nothing_for_a_session_timeout_resigns(zookeeper_ensemble: LocalEnsemble, run: Run) -> None:
    """Without a quorum nobody is told that a session is over; by then another might act, so one must not."""

    async def story() -> None:
        async with session(f"{zookeeper_ensemble.connect}/doubt") as zk:
            lone = Candidate(zk, "lone")
            await lone.elected(1)
            for number in (1, 2):
                await asyncio.to_thread(zookeeper_ensemble.kill, number)
            await lone.until(lambda: lone.told == [1, 0])
            assert zk.state is SessionState.SUSPENDED
            await asyncio.to_thread(zookeeper_ensemble.start)
            await lone.until(lambda: lone.election.term is not None)
            await lone.election.stop()

    run(story)
