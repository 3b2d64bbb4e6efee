"""Plain classic members by Kafka's protocol: join, sync and leave as it says, with the load's lean connections."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import BenchFailed

JOIN, SYNC, BEAT, LEAVE, COMMIT = 5, 3, 3, 1, 7
"""Versions that librdkafka uses, and that its mock cluster knows."""

PROTOCOL: Final = "range"
SESSION_MS, REBALANCE_MS = 600_000, 60_000
SUBSCRIPTION: Final = b"\x00\x03" + bytes(46)
SHARE: Final = bytes(40)
"""As long as those of a consumer of one topic; no coordinator looks into them."""

AGAIN = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})


@dataclass(slots=True)
class KafkaMember:
    """One member on a connection of its own."""

    line: LoadConnection
    group_id: str
    member_id: str = ""
    generation: int = -1

    async def join(self) -> None:
        """Join and sync until it has its share; a leader gives everybody one."""
        while True:
            request = join_request(self.group_id, self.member_id, SUBSCRIPTION, SESSION_MS, REBALANCE_MS)
            joined = await self.line.ask("JoinGroup", JOIN, request)
            self.member_id = joined.member_id or self.member_id
            if not must_rejoin("JoinGroup", joined) and not must_rejoin("SyncGroup", await self._sync(joined)):
                self.generation = joined.generation_id
                return

    async def leave(self) -> None:
        request = struct("LeaveGroupRequest")(group_id=self.group_id, member_id=self.member_id)
        must_rejoin("LeaveGroup", await self.line.ask("LeaveGroup", LEAVE, request))

    async def called(self) -> None:
        """Beat until the group calls its members back."""
        while await self.answered() != ErrorCode.REBALANCE_IN_PROGRESS:
            pass

    async def answered(self) -> int:
        """The code that a heartbeat is answered with."""
        return int((await self.line.ask("Heartbeat", BEAT, self._heartbeat())).error_code)

    def beat(self) -> bytes:
        """The bytes of its heartbeat."""
        return self.line.request("Heartbeat", BEAT, self._heartbeat())

    def _heartbeat(self) -> Any:
        return heartbeat_request(self.group_id, self.member_id, self.generation)

    def commit(self, topic: str, partitions: int) -> bytes:
        """The bytes of a commit of so many partitions."""
        return self.line.request("OffsetCommit", COMMIT, self._commit(topic, partitions))

    async def committed(self, topic: str, partitions: int) -> None:
        """Commit them once, and see to it that all were taken."""
        answer = await self.line.ask("OffsetCommit", COMMIT, self._commit(topic, partitions))
        codes = [row.error_code for each in answer.topics for row in each.partitions]
        if codes != [ErrorCode.NONE] * partitions:
            raise BenchFailed(f"a commit of {partitions} partitions was answered {codes}; no healthy group does that")

    def _commit(self, topic: str, partitions: int) -> Any:
        row = struct("OffsetCommitRequest.topics.partitions")
        rows = [
            row(partition_index=number, committed_offset=1_000, committed_metadata="") for number in range(partitions)
        ]
        return struct("OffsetCommitRequest")(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[struct("OffsetCommitRequest.topics")(name=topic, partitions=rows)],
        )

    async def _sync(self, joined: Any) -> Any:
        shares = {one.member_id: SHARE for one in joined.members}
        request = sync_request(self.group_id, self.member_id, joined.generation_id, shares)
        return await self.line.ask("SyncGroup", SYNC, request)


def join_request(group_id: str, member_id: str, subscription: bytes, session_ms: int, rebalance_ms: int) -> Any:
    protocol = struct("JoinGroupRequest.protocols")(name=PROTOCOL, metadata=subscription)
    return struct("JoinGroupRequest")(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_request(group_id: str, member_id: str, generation: int, shares: Mapping[str, bytes]) -> Any:
    given = struct("SyncGroupRequest.assignments")
    return struct("SyncGroupRequest")(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        assignments=[given(member_id=who, assignment=blob) for who, blob in shares.items()],
    )


def heartbeat_request(group_id: str, member_id: str, generation: int) -> Any:
    return struct("HeartbeatRequest")(group_id=group_id, generation_id=generation, member_id=member_id)


def must_rejoin(what: str, answer: Any) -> bool:
    """Whether the member has to begin anew; raises BenchFailed for what no healthy group answers."""
    if answer.error_code in AGAIN:
        return True
    if answer.error_code:
        raise BenchFailed(f"{what} was answered {ErrorCode(answer.error_code).name}; no healthy group does that")
    return False


async def join_together(address: str, group_ids: list[str]) -> list[KafkaMember]:
    """One member for each id of the list; those of one group join together."""
    members = [KafkaMember(await LoadConnection.to(address), group_id) for group_id in group_ids]
    await asyncio.gather(*(member.join() for member in members))
    return members
