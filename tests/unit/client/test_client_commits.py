"""What becomes of a commit whose member epoch has moved on (KIP-848)."""

import asyncio
from collections.abc import Mapping

import pytest

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, load
from muster.client.errors import CommitFailed, Refused, refusal
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.positions import STALE_MEMBER_EPOCH, ConsumerCommits
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7)}
CONFIG = load(ConsumerConfig, {"group.id": "g"}, {})


class Group(GroupCalls):
    """Accepts commits under its own epoch only."""

    def __init__(self, epoch: int) -> None:
        super().__init__(Transport(CONFIG), "g")
        self.epoch = epoch
        self.tried: list[int] = []

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
    ) -> None:
        assert identity is not None
        self.tried.append(identity.generation)
        if identity.generation != self.epoch:
            raise refusal(STALE_MEMBER_EPOCH, "STALE_MEMBER_EPOCH", "the epoch has moved on", "g")


class Member:
    """Learns the group's epoch from a refusal, as a heartbeat would tell it; `learns` None: it was fenced."""

    def __init__(self, epoch: int, learns: int | None) -> None:
        self.epoch = epoch
        self.learns = learns

    def identity(self) -> GroupMetadata:
        return GroupMetadata("g", self.epoch, "me", None)

    def refused(self, error: Refused, epoch: int) -> None:
        assert (error.code, epoch) == (STALE_MEMBER_EPOCH, self.epoch)
        self.epoch = -1 if self.learns is None else self.learns


async def commit(group: Group, member: Member) -> None:
    fetcher = ConsumerFetcher(Transport(CONFIG), CONFIG, lambda: None)
    await ConsumerCommits(group, CONFIG, fetcher, member.identity, member.refused).commit(OFFSETS)


def test_a_stale_commit_is_made_again_under_the_new_epoch() -> None:
    group, member = Group(epoch=5), Member(4, learns=5)
    asyncio.run(commit(group, member))
    assert group.tried == [4, 5]


def test_a_stale_commit_of_a_member_that_is_out_fails() -> None:
    group, member = Group(epoch=5), Member(4, learns=None)
    with pytest.raises(Refused, match="the epoch has moved on"):
        asyncio.run(commit(group, member))
    assert group.tried == [4]


def test_who_is_no_member_commits_nothing() -> None:
    group = Group(epoch=5)
    with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID: g: this consumer is not a member right now"):
        asyncio.run(commit(group, Member(-1, learns=None)))
    assert group.tried == []
