"""Idle members of `muster bench coordinator`: how many open their streams at a time, in each of several runs."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from muster.workshop.bench import groups
from muster.workshop.bench.groups import AnsweredMember
from muster.workshop.bench.grpc_members import PushedMember, make_share

AT_A_TIME = 2


class Crowd:
    """Members without a node: they live, and have said and heard enough."""

    def __init__(self, server: object, group_id: str, size: int, kind: type[AnsweredMember], wires: int) -> None:
        self.members = [kind(cast(Any, None), group_id, make_share) for _ in range(size)]
        self._looks = 0

    @property
    def messages(self) -> int:
        self._looks += 1
        return 2 * len(self.members) * self._looks

    async def __aenter__(self) -> "Crowd":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def join(self) -> None:
        self._lives = [asyncio.create_task(member.live(1.0, 0.0)) for member in self.members]

    async def done(self, work: Iterable[Any]) -> None:
        await asyncio.gather(*work, *self._lives)


class Server:
    def cpu_s(self) -> float:
        return 0.0


def test_streams_are_opened_some_at_a_time_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run of `--runs` waited for a semaphore of the first one's loop, which raises."""
    now = most = 0

    async def live(member: PushedMember, every_s: float, first_s: float) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        await member._welcome(None)

    async def welcome(member: PushedMember, stream: Any) -> float:
        return 1.0

    monkeypatch.setattr(PushedMember, "live", live)
    monkeypatch.setattr(PushedMember, "_welcome", welcome)
    monkeypatch.setattr(groups, "MemberCrowd", Crowd)
    monkeypatch.setattr(groups, "OPENING", AT_A_TIME)
    for _ in range(2):
        assert asyncio.run(groups.measure_idle_share(cast(Any, Server()), 7, 0.001)) == 0.0
    assert most == AT_A_TIME
