"""Scripted requests of transactional producers and operators, and what a server answers to each.

The same script is asked of a Kafka broker and of a node. Each step has a label; of its answer only what no run changes
is kept: producer ids by the order in which a story meets them, times as whether there is one.

`python -m tests.support.kafka.transaction_script HOST:PORT` records what a broker says that looks for timeouts often,
as the one of `interop/test_interop_transaction_answers.py` does.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.storage.records.batch import encode_batch
from tests.support.kafka.client import KafkaClient

PATIENCE_S: Final = 10.0
LOOKS: Final = 600
CONCURRENT: Final = 51
LOADING: Final = frozenset({14, 15, 16})
Place = tuple[str, int]


def one(path: str, **fields: object) -> Any:
    return struct(path)(**fields)


class Server:
    """One server, as one story meets it: with names of its own."""

    def __init__(self, address: str, run: str) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._run = (host, int(port)), run
        self._producers: dict[int, str] = {-1: "none"}
        self.said: dict[str, Any] = {}

    async def ask(self, api: str, version: int, **fields: object) -> Any:
        """The answer, by a connection of its own; None where it is closed instead."""
        async with KafkaClient(*self._address) as client, asyncio.timeout(PATIENCE_S):
            try:
                return await client.ask(api, version, **fields)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    def name(self, short: str) -> str:
        return f"{short}{self._run}"

    def producer(self, producer_id: int) -> str:
        return self._producers.setdefault(producer_id, f"p{len(self._producers)}")

    async def topic(self, short: str, partitions: int = 2) -> str:
        name = self.name(short)
        wanted = one("CreateTopicsRequest.topics", name=name, num_partitions=partitions, replication_factor=1)
        await self.ask("CreateTopics", 7, topics=[wanted], timeout_ms=5000)
        asked = one("MetadataRequest.topics", name=name)
        await self.until(
            lambda: self.ask("Metadata", 9, topics=[asked], allow_auto_topic_creation=False),
            lambda answer: not answer.topics[0].error_code and len(answer.topics[0].partitions) == partitions,
        )
        for number in range(partitions):  # A broker knows of a topic before it leads its partitions.
            await self.until(partial(self.latest, (name, number)), lambda found: not found[0])
        return name

    async def until(self, look: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> Any:
        for _ in range(LOOKS):
            answer = await look()
            if good(answer):
                return answer
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{self._address} still says {answer}")

    async def ready(self) -> None:
        """A fresh server makes its topics of groups and transactions first, and then loads them."""
        for kind in (0, 1):
            await self.until(
                partial(self.ask, "FindCoordinator", 3, key=self.name("ready"), key_type=kind),
                lambda answer: answer.error_code == 0,
            )
        await self.until(
            lambda: self.ask("InitProducerId", 4, transactional_id=self.name("ready"), transaction_timeout_ms=1000),
            lambda answer: answer.error_code not in LOADING,
        )
        await self.until(
            lambda: self.ask("Heartbeat", 4, group_id=self.name("ready"), generation_id=1, member_id="m"),
            lambda answer: answer.error_code not in LOADING,
        )

    # -- producers ------------------------------------------------------------------------------------------------

    async def init(
        self, name: str | None, held: tuple[int, int] = (-1, -1), *, version: int = 4, timeout_ms: int = 60_000
    ) -> Any:
        """Asked again while a transaction is being completed, as clients do."""
        return await self.until(
            lambda: self.ask(
                "InitProducerId",
                version,
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=held[0],
                producer_epoch=held[1],
            ),
            lambda answer: answer.error_code != CONCURRENT,
        )

    async def add(self, name: str, held: tuple[int, int], *places: Place, version: int = 3) -> list[int]:
        topics = [one("AddPartitionsToTxnRequest.topics", name=topic, partitions=[number]) for topic, number in places]

        async def look() -> list[int]:
            answer = await self.ask(
                "AddPartitionsToTxn",
                version,
                transactional_id=name,
                producer_id=held[0],
                producer_epoch=held[1],
                topics=topics,
            )
            told = {
                (topic.name, part.partition_index): part.partition_error_code
                for topic in answer.results
                for part in topic.results_by_partition
            }
            return [told[place] for place in places]

        return list(await self.until(look, lambda codes: CONCURRENT not in codes))

    async def verify(
        self, name: str, held: tuple[int, int], *places: Place, version: int = 4, verify_only: bool = True
    ) -> Any:
        path = "AddPartitionsToTxnRequest.transactions"
        topics = [one(f"{path}.topics", name=topic, partitions=[number]) for topic, number in places]
        row = one(
            path,
            transactional_id=name,
            producer_id=held[0],
            producer_epoch=held[1],
            verify_only=verify_only,
            topics=topics,
        )
        answer = await self.ask("AddPartitionsToTxn", version, transactions=[row])
        return answer.error_code, [
            part.partition_error_code
            for txn in answer.results_by_transaction
            for topic in txn.topic_results
            for part in topic.results_by_partition
        ]

    async def end(self, name: str, held: tuple[int, int], commit: bool, *, version: int = 3) -> Any:
        """The whole answer; asked again while the end before is being completed."""
        return await self.until(
            lambda: self.ask(
                "EndTxn",
                version,
                transactional_id=name,
                producer_id=held[0],
                producer_epoch=held[1],
                committed=commit,
            ),
            lambda answer: answer.error_code != CONCURRENT,
        )

    async def send(
        self,
        name: str | None,
        held: tuple[int, int],
        place: Place,
        first: int,
        *,
        version: int = 11,
        transactional: bool = True,
        count: int = 1,
        codec: str = "none",
    ) -> tuple[int, int]:
        """Code and offset. While the coordinator is not done with the transaction before, clients send again."""
        records = encode_batch(
            [(time.time_ns() // 1_000_000, None, b"value", ())] * count,
            producer_id=held[0],
            producer_epoch=held[1],
            base_sequence=first,
            transactional=transactional,
            codec=codec,
        )
        data = one("ProduceRequest.topic_data.partition_data", index=place[1], records=records)
        told = one("ProduceRequest.topic_data", name=place[0], partition_data=[data])

        async def look() -> tuple[int, int]:
            answer = await self.ask(
                "Produce", version, transactional_id=name, acks=-1, timeout_ms=5000, topic_data=[told]
            )
            part = answer.responses[0].partition_responses[0]
            return part.error_code, part.base_offset

        found: tuple[int, int] = await self.until(look, lambda answer: answer[0] not in (CONCURRENT, 19))
        return found

    # -- what came of it ----------------------------------------------------------------------------------------

    async def state(self, name: str) -> tuple[object, ...]:
        """What DescribeTransactions says of an id that is between two states no more."""

        async def look() -> Any:
            return (await self.ask("DescribeTransactions", 0, transactional_ids=[name])).transaction_states[0]

        row = await self.until(look, lambda each: not each.transaction_state.startswith("Prepare"))
        places = sorted((topic.topic, number) for topic in row.topics for number in topic.partitions)
        return (
            row.error_code,
            row.transaction_state,
            self.producer(row.producer_id) if row.producer_id >= 0 else "none",
            row.producer_epoch,
            row.transaction_timeout_ms,
            [(self.short(topic), number) for topic, number in places],
        )

    def short(self, name: str) -> str:
        return name.removesuffix(self._run)

    async def ended(self, name: str) -> str:
        return str((await self.state(name))[1])

    async def producers(self, place: Place) -> list[tuple[object, ...]]:
        asked = one("DescribeProducersRequest.topics", name=place[0], partition_indexes=[place[1]])
        answer = await self.ask("DescribeProducers", 0, topics=[asked])
        part = answer.topics[0].partitions[0]
        if part.error_code:
            return [(part.error_code,)]
        return [  # in no order that a broker promises
            (
                self.producer(each.producer_id),
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp > 0,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in sorted(part.active_producers, key=lambda each: each.producer_id)
        ]

    async def fetch(self, place: Place, offset: int = 0, isolation: int = 1) -> tuple[object, ...]:
        part = one(
            "FetchRequest.topics.partitions", partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topics = [one("FetchRequest.topics", topic=place[0], partitions=[part])]
        answer = await self.ask(
            "Fetch", 11, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation,
            topics=topics,
        )  # fmt: skip
        told = answer.responses[0].partitions[0]
        aborted = [(self.producer(each.producer_id), each.first_offset) for each in told.aborted_transactions or ()]
        return told.error_code, told.high_watermark, told.last_stable_offset, len(told.records or b"") > 0, aborted

    async def settled(self, place: Place, end: int) -> tuple[object, ...]:
        """What a reader of committed records gets once the markers up to `end` are there."""
        found: tuple[object, ...] = await self.until(
            lambda: self.fetch(place), lambda told: told[1] == told[2] and told[1] >= end
        )
        return found

    async def latest(self, place: Place, isolation: int = 1) -> tuple[int, int]:
        part = one("ListOffsetsRequest.topics.partitions", partition_index=place[1], timestamp=-1)
        topics = [one("ListOffsetsRequest.topics", name=place[0], partitions=[part])]
        answer = await self.ask("ListOffsets", 4, replica_id=-1, isolation_level=isolation, topics=topics)
        told = answer.topics[0].partitions[0]
        return told.error_code, told.offset

    async def mark(
        self, held: tuple[int, int], *places: Place, commit: bool = False, coordinator: int = 0
    ) -> list[int]:
        path = "WriteTxnMarkersRequest.markers"
        topics = [one(f"{path}.topics", name=topic, partition_indexes=[number]) for topic, number in places]
        marker = one(
            path,
            producer_id=held[0],
            producer_epoch=held[1],
            transaction_result=commit,
            coordinator_epoch=coordinator,
            topics=topics,
        )
        answer = await self.ask("WriteTxnMarkers", 1, markers=[marker])
        told = {
            (topic.name, part.partition_index): part.error_code
            for each in answer.markers
            for topic in each.topics
            for part in topic.partitions
        }
        return [told[place] for place in places]

    # -- positions ------------------------------------------------------------------------------------------------

    async def add_offsets(self, name: str, held: tuple[int, int], group: str, *, version: int = 3) -> int:
        answer = await self.until(
            lambda: self.ask(
                "AddOffsetsToTxn",
                version,
                transactional_id=name,
                producer_id=held[0],
                producer_epoch=held[1],
                group_id=group,
            ),
            lambda each: each.error_code != CONCURRENT,
        )
        return int(answer.error_code)

    async def commit_offsets(
        self,
        name: str,
        held: tuple[int, int],
        group: str,
        offsets: dict[Place, int],
        *,
        version: int = 3,
        generation: int = -1,
        member: str = "",
        metadata: str = "",
    ) -> list[int]:
        path = "TxnOffsetCommitRequest.topics"
        topics = [
            one(
                path,
                name=topic,
                partitions=[
                    one(
                        f"{path}.partitions",
                        partition_index=number,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                ],
            )
            for (topic, number), offset in offsets.items()
        ]
        answer = await self.ask(
            "TxnOffsetCommit",
            version,
            transactional_id=name,
            group_id=group,
            producer_id=held[0],
            producer_epoch=held[1],
            generation_id=generation,
            member_id=member,
            topics=topics,
        )
        told = {
            (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
        }
        return [told[place] for place in offsets]

    async def positions(self, group: str, *places: Place, stable: bool = True) -> list[tuple[int, int]]:
        asked = [one("OffsetFetchRequest.topics", name=topic, partition_indexes=[number]) for topic, number in places]
        answer = await self.ask("OffsetFetch", 7, group_id=group, topics=asked, require_stable=stable)
        told = {
            (topic.name, part.partition_index): (part.error_code, part.committed_offset)
            for topic in answer.topics
            for part in topic.partitions
        }
        return [told.get(place, (answer.error_code, -1)) for place in places]


def given(answer: Any) -> tuple[int, int]:
    return answer.producer_id, answer.producer_epoch


Said = dict[str, Any]


# Stories
# -------


async def producer_ids(to: Server) -> Said:
    """InitProducerId: new instances, going on, repetitions, and what is refused."""
    name, said = to.name("ids"), Said()

    def told(answer: Any) -> tuple[object, ...]:
        return answer.error_code, to.producer(answer.producer_id), answer.producer_epoch

    first = await to.init(name)
    said["a new id"] = told(first)
    said["state of a new id"] = await to.state(name)
    second = await to.init(name)
    said["a new instance"] = told(second)
    third = await to.init(name, given(second))
    said["going on"] = told(third)
    said["going on, repeated"] = told(await to.init(name, given(second)))
    said["going on with an epoch that was fenced"] = told(await to.init(name, given(first)))
    said["the same in version 3"] = told(await to.init(name, given(first), version=3))
    said["going on with an epoch that comes"] = told(await to.init(name, (third.producer_id, 99)))
    said["going on with another producer id"] = told(await to.init(name, (third.producer_id + 1000, 0)))
    said["only a producer id"] = told(await to.init(name, (third.producer_id, -1)))
    said["only an epoch"] = told(await to.init(name, (-1, 3)))
    said["an empty id"] = told(await to.init(""))
    said["an empty id in version 0"] = told(await to.init("", version=0))
    said["no id"] = told(await to.init(None))
    for timeout_ms in (0, -1, 900_000, 900_001):
        said[f"timeout {timeout_ms}"] = told(await to.init(to.name("timeouts"), timeout_ms=timeout_ms))
    said["an unknown id going on"] = told(await to.init(to.name("unknown"), (third.producer_id, 5)))
    said["state at the end"] = await to.state(name)
    return said


async def level_0(to: Server) -> Said:
    """Clients whose EndTxn keeps the epoch: partitions are added first."""
    topic, name, said = await to.topic("level-0"), to.name("zero"), Said()
    here, there = (topic, 0), (topic, 1)
    held = given(await to.init(name))
    old = (held[0], held[1] - 1)
    said["produce before the partition is added, version 9"] = await to.send(name, held, here, 0, version=9)
    said["produce before the partition is added, version 11"] = await to.send(name, held, here, 0)
    said["end, empty, commit"] = (await to.end(name, held, True)).error_code
    said["end, empty, abort"] = (await to.end(name, held, False)).error_code
    said["add: a topic that is not there"] = await to.add(name, held, here, (to.name("nowhere"), 0))
    said["add: a partition that is not there"] = await to.add(name, held, (topic, 9), here)
    said["add: an unknown id"] = await to.add(to.name("nobody"), held, here)
    said["add: an empty id"] = await to.add("", held, here)
    said["add: another producer id"] = await to.add(name, (held[0] + 1000, held[1]), here)
    said["add: an epoch that comes"] = await to.add(name, (held[0], held[1] + 1), here)
    said["add: an older epoch"] = await to.add(name, old, here)
    said["add: an older epoch, version 1"] = await to.add(name, old, here, version=1)
    said["add"] = await to.add(name, held, here)
    said["add again"] = await to.add(name, held, here)
    said["state with a partition"] = await to.state(name)
    said["verify: in it"] = await to.verify(name, held, here)
    said["verify: not in it"] = await to.verify(name, held, there)
    said["verify: an older epoch"] = await to.verify(name, old, here)
    said["verify: another producer id"] = await to.verify(name, (held[0] + 1000, held[1]), here)
    said["verify: an unknown id"] = await to.verify(to.name("nobody"), held, here)
    said["produce"] = await to.send(name, held, here, 0, count=2)
    said["produce again"] = await to.send(name, held, here, 0, count=2)
    said["produce: a gap"] = await to.send(name, held, here, 5)
    said["produce: without the transactional bit"] = await to.send(None, held, here, 2, transactional=False)
    said["produce: without an id"] = await to.send(None, held, here, 2)
    said["produce: another producer id"] = await to.send(name, (held[0] + 1000, held[1]), there, 0)
    said["produce: an older epoch"] = await to.send(name, old, here, 2)
    said["produce: not added"] = await to.send(name, held, there, 0)
    said["producers, open"] = await to.producers(here)
    said["committed records, open"] = await to.fetch(here)
    said["all records, open"] = await to.fetch(here, isolation=0)
    said["latest, open"] = [await to.latest(here), await to.latest(here, 0)]
    said["end: an unknown id"] = (await to.end(to.name("nobody"), held, True)).error_code
    said["end: an empty id"] = (await to.end("", held, True)).error_code
    said["end: another producer id"] = (await to.end(name, (held[0] + 1000, held[1]), True)).error_code
    said["end: an older epoch"] = (await to.end(name, old, True)).error_code
    said["end: an older epoch, version 1"] = (await to.end(name, old, True, version=1)).error_code
    said["end: an epoch that comes"] = (await to.end(name, (held[0], held[1] + 1), True)).error_code
    said["end: commit"] = (await to.end(name, held, True)).error_code
    said["state after a commit"] = await to.state(name)
    said["end: commit, repeated"] = (await to.end(name, held, True)).error_code
    said["end: abort after a commit"] = (await to.end(name, held, False)).error_code
    said["committed records, committed"] = await to.settled(here, 3)
    said["producers, committed"] = await to.producers(here)
    said["add after a commit"] = await to.add(name, held, here, there)
    said["produce after a commit"] = await to.send(name, held, here, 2)
    said["end: abort"] = (await to.end(name, held, False, version=4)).error_code
    said["state after an abort"] = await to.state(name)
    said["end: abort, repeated"] = (await to.end(name, held, False)).error_code
    said["end: commit after an abort"] = (await to.end(name, held, True)).error_code
    said["committed records, aborted"] = await to.settled(here, 5)
    said["latest, aborted"] = [await to.latest(here), await to.latest(here, 0)]
    said["producers, aborted"] = await to.producers(there)
    return said


async def level_2(to: Server) -> Said:
    """Clients whose every transaction has an epoch: EndTxn 5, in each state, by each epoch; records add partitions."""
    topic, said = await to.topic("level-2"), Said()
    here = (topic, 0)

    def told(answer: Any) -> tuple[object, ...]:
        return answer.error_code, to.producer(answer.producer_id), answer.producer_epoch

    for state in ("Empty", "CompleteAbort", "CompleteCommit", "Ongoing"):
        for commit in (False, True):
            for before in (1, 0):
                name = to.name(f"{state}-{commit}-{before}")
                held = given(await to.init(name))
                held = given(await to.init(name))
                sequence = 0
                if state.startswith("Complete"):
                    await to.send(name, held, here, 0, version=12)
                    held = given(await to.end(name, held, state == "CompleteCommit", version=5))
                    await to.ended(name)
                if state == "Ongoing":
                    await to.send(name, held, here, sequence, version=12)
                label = f"{state}: {'commit' if commit else 'abort'}, {'epoch before' if before else 'current epoch'}"
                answer = await to.end(name, (held[0], held[1] - before), commit, version=5)
                code, _, epoch = told(answer)
                raised = None if not isinstance(epoch, int) or epoch < 0 else epoch - held[1]
                said[label] = code, raised, (await to.state(name))[1]
    name = to.name("two")
    held = given(await to.init(name))
    said["add 5: from a client"] = await to.verify(name, held, here, version=5, verify_only=False)
    said["produce 12: an unknown id"] = await to.send(to.name("nobody"), held, here, 0, version=12)
    said["produce 12: another producer id"] = await to.send(name, (held[0] + 1000, 0), here, 0, version=12)
    said["produce 12: an epoch that comes"] = await to.send(name, (held[0], held[1] + 1), here, 0, version=12)
    said["produce 12: a first sequence above 0"] = await to.send(name, held, (topic, 1), 3, version=12)
    said["produce 12"] = (await to.send(name, held, here, 0, version=12))[0]
    said["state after produce 12"] = await to.state(name)
    ended = await to.end(name, held, True, version=5)
    said["end 5: commit"] = told(ended)
    said["end 5: commit, repeated"] = told(await to.end(name, held, True, version=5))
    said["state after end 5"] = await to.state(name)
    said["produce 12: the epoch before"] = (await to.send(name, held, here, 1, version=12))[0]
    said["produce 12: the next epoch"] = (await to.send(name, given(ended), here, 0, version=12))[0]
    said["end 5: the epoch before, in the next transaction"] = told(await to.end(name, held, True, version=5))
    said["end 5: another producer id"] = told(await to.end(name, (held[0] + 1000, 0), True, version=5))
    said["end 5: an unknown id"] = told(await to.end(to.name("nobody"), held, True, version=5))
    aborted = await to.end(name, given(ended), False, version=5)
    said["end 5: abort"] = told(aborted)
    said["end 5: abort, empty"] = told(await to.end(name, given(aborted), False, version=5))
    return said


async def fencing(to: Server) -> Said:
    """A new instance meets an open transaction."""
    topic, name, said = await to.topic("fencing"), to.name("fenced"), Said()
    here = (topic, 0)
    first = given(await to.init(name))
    await to.add(name, first, here)
    await to.send(name, first, here, 0)
    second = await to.init(name)
    said["the next instance"] = second.error_code, to.producer(second.producer_id), second.producer_epoch
    said["its state"] = await to.state(name)
    said["its log"] = await to.settled(here, 2)
    said["its producers"] = await to.producers(here)
    for version in (3, 1):
        said[f"the fenced one adds, version {version}"] = await to.add(name, first, here, version=version)
        said[f"the fenced one ends, version {version}"] = (await to.end(name, first, True, version=version)).error_code
    said["the fenced one produces"] = await to.send(name, first, here, 1)
    said["the fenced one produces, version 9"] = await to.send(name, first, here, 1, version=9)
    held = given(second)
    await to.add(name, held, here)
    await to.send(name, held, here, 0)
    answer = await to.init(name, first)
    said["the fenced one goes on"] = answer.error_code
    said["state after the fenced one went on"] = (await to.state(name))[1:4]
    return said


async def timeouts(to: Server) -> Said:
    """The coordinator aborts a transaction: clients of both levels find out, and live on."""
    topic, said = await to.topic("timeouts"), Said()
    here, there = (topic, 0), (topic, 1)
    old, new = to.name("slow-0"), to.name("slow-2")
    zero = given(await to.init(old, timeout_ms=300))
    two = given(await to.init(new, timeout_ms=300))
    await to.add(old, zero, here)
    await to.send(old, zero, here, 0)
    await to.send(new, two, there, 0, version=12)
    for name in (old, new):
        await to.until(partial(to.ended, name), lambda state: state != "Ongoing")
    said["level 0: state"] = await to.state(old)
    said["level 0: produce"] = (await to.send(old, zero, here, 1))[0]
    said["level 0: add"] = await to.add(old, zero, here)
    said["level 0: commit"] = (await to.end(old, zero, True)).error_code
    said["level 0: abort"] = (await to.end(old, zero, False)).error_code
    again = await to.init(old, zero, timeout_ms=60_000)
    said["level 0: going on"] = again.error_code, again.producer_epoch - zero[1]
    said["level 2: state"] = await to.state(new)
    said["level 2: produce"] = (await to.send(new, two, there, 1, version=12))[0]
    said["level 2: commit"] = (await to.end(new, two, True, version=5)).error_code
    answer = await to.end(new, two, False, version=5)
    said["level 2: abort"] = answer.error_code, answer.producer_epoch - two[1]
    said["level 2: the next one"] = (await to.send(new, given(answer), there, 0, version=12))[0]
    return said


async def positions(to: Server) -> Said:
    """A group's positions in transactions."""
    topic, said = await to.topic("positions"), Said()
    here, there, nowhere = (topic, 0), (topic, 1), (to.name("nowhere"), 0)
    name, group = to.name("offsets"), to.name("group")
    held = given(await to.init(name))
    for version in (3, 4, 5):
        label = f"commit, version {version}, not added"
        other = f"{name}-{version}"
        who = given(await to.init(other))
        said[label] = await to.commit_offsets(other, who, f"{group}-{version}", {here: 5}, version=version)
        said[f"state: {label}"] = (await to.state(other))[1]
    said["add: an unknown id"] = await to.add_offsets(to.name("nobody"), held, group)
    said["add: another producer id"] = await to.add_offsets(name, (held[0] + 1000, 0), group)
    said["add: an epoch that comes"] = await to.add_offsets(name, (held[0], held[1] + 1), group)
    said["add: an epoch that comes, version 1"] = await to.add_offsets(name, (held[0], held[1] + 1), group, version=1)
    said["add: no group"] = await to.add_offsets(name, held, "")
    said["add"] = await to.add_offsets(name, held, group)
    said["commit"] = await to.commit_offsets(name, held, group, {here: 5, there: 6})
    said["commit: a topic that is not there"] = await to.commit_offsets(name, held, group, {nowhere: 1, here: 7})
    said["commit: no group"] = await to.commit_offsets(name, held, "", {here: 5})
    said["commit: an older epoch"] = await to.commit_offsets(name, (held[0], held[1] - 1), group, {here: 5})
    said["commit: another generation"] = await to.commit_offsets(name, held, group, {here: 8}, generation=3, member="m")
    said["commit: metadata too long"] = await to.commit_offsets(name, held, group, {there: 6}, metadata="x" * 5000)
    said["pending, stable"] = await to.positions(group, here, there)
    said["pending, any"] = await to.positions(group, here, there, stable=False)
    said["end"] = (await to.end(name, held, True)).error_code
    said["state at the end"] = await to.ended(name)
    said["committed"] = await to.until(
        lambda: to.positions(group, here, there), lambda found: all(code != 88 for code, _ in found)
    )
    await to.add_offsets(name, held, group)
    await to.commit_offsets(name, held, group, {here: 50})
    said["end: abort"] = (await to.end(name, held, False)).error_code
    await to.ended(name)
    said["aborted"] = await to.until(
        lambda: to.positions(group, here, there), lambda found: all(code != 88 for code, _ in found)
    )
    held = given(await to.init(name))
    await to.add_offsets(name, held, group)
    await to.commit_offsets(name, held, group, {here: 60})
    deleted = await to.ask("DeleteGroups", 2, groups_names=[group])
    said["delete the group"] = deleted.results[0].error_code
    said["end after that"] = (await to.end(name, held, True)).error_code
    await to.ended(name)
    said["positions of the deleted group"] = await to.positions(group, here, stable=False)
    return said


async def operators(to: Server) -> Said:
    """What tools ask, and markers by hand."""
    topic, name, said = await to.topic("tools", 3), to.name("tools"), Said()
    here, there, elsewhere = (topic, 0), (topic, 1), (topic, 2)

    async def described(*names: str) -> list[tuple[int, str, int]]:
        answer = await to.ask("DescribeTransactions", 0, transactional_ids=list(names))
        return sorted(
            (each.error_code, to.short(each.transactional_id), each.producer_epoch)
            for each in answer.transaction_states
        )

    async def listed(version: int = 1, **filters: Any) -> tuple[object, ...]:
        answer = await to.ask("ListTransactions", version, **filters)
        rows = sorted(
            (to.short(each.transactional_id), to.producer(each.producer_id), each.transaction_state)
            for each in answer.transaction_states
            if each.transactional_id == name
        )
        return answer.error_code, sorted(answer.unknown_state_filters), rows

    said["describe: an empty id, and none that there is"] = await described("", to.name("nobody"))
    await to.init(name)
    held = given(await to.init(name))
    await to.add(name, held, here, there)
    await to.send(name, held, here, 0)
    await to.send(name, held, there, 0)
    said["describe: one twice"] = await described(name, name)
    said["list"] = await listed()
    said["list: its state"] = await listed(state_filters=["Ongoing"])
    said["list: another state"] = await listed(state_filters=["Empty", "Dead"])
    said["list: unknown states"] = await listed(state_filters=["Ongoing", "ongoing", "bogus"])
    said["list: its producer id"] = await listed(producer_id_filters=[held[0]])
    said["list: another producer id"] = await listed(producer_id_filters=[held[0] + 1000])
    said["list: open for long"] = await listed(duration_filter=3_600_000)
    said["list: open for any time"] = await listed(duration_filter=0)
    said["list: its name"] = await listed(2, transactional_id_pattern=name)
    said["list: a part of its name"] = await listed(2, transactional_id_pattern="too")
    said["list: a pattern that is none"] = await listed(2, transactional_id_pattern="(")
    said["list: an empty pattern"] = await listed(2, transactional_id_pattern="")
    said["producers: unknown places"] = [
        await to.producers((topic, 9)),
        await to.producers((to.name("nowhere"), 0)),
    ]
    said["mark: unknown places"] = await to.mark(held, (topic, 9), (to.name("nowhere"), 0))
    said["mark: an older epoch"] = await to.mark((held[0], held[1] - 1), here)
    said["mark: epoch -1"] = await to.mark((held[0], -1), here)
    said["mark: abort of one part"] = await to.mark(held, here)
    said["records after it"] = await to.settled(here, 2)
    said["producers after it"] = await to.producers(here)
    said["state after it"] = await to.state(name)
    said["mark again"] = await to.mark(held, here)
    said["mark: an older coordinator"] = await to.mark(held, here, coordinator=-1)
    said["mark: a coordinator that comes"] = await to.mark((held[0] + 1000, 0), elsewhere, coordinator=1_000)
    said["commit of the rest"] = (await to.end(name, held, True)).error_code
    said["state of the rest"] = await to.ended(name)
    said["records of the torn one"] = [await to.settled(here, 4), await to.settled(there, 2)]
    said["mark: a producer that nobody knows"] = await to.mark((held[0] + 2000, 3), here)
    said["producers at the end"] = await to.producers(here)
    return said


async def logs(to: Server) -> Said:
    """What readers are told of open transactions, whatever happens to their records; and odd places."""
    topic, said = await to.topic("logs"), Said()
    here, there = (topic, 0), (topic, 1)
    first, second = to.name("log-1"), to.name("log-2")
    one_held, two_held = given(await to.init(first)), given(await to.init(second))
    await to.send(None, (-1, -1), here, -1, transactional=False)
    await to.add(first, one_held, here, there)
    await to.add(second, two_held, here)
    said["offsets of two producers"] = [
        await to.send(first, one_held, here, 0),
        await to.send(second, two_held, here, 0, count=2),
        await to.send(first, one_held, here, 1),
    ]
    await to.send(None, (-1, -1), here, -1, transactional=False)
    said["both open"] = await to.fetch(here)
    said["both open: from behind the first"] = await to.fetch(here, 3)
    await to.end(first, one_held, False)
    said["the older one aborted"] = await to.until(lambda: to.fetch(here), lambda told: told[2] == 2)
    said["the older one aborted: from its end on"] = await to.fetch(here, 2)
    said["the older one aborted: all records"] = await to.fetch(here, isolation=0)
    part = one("DeleteRecordsRequest.topics.partitions", partition_index=0, offset=4)
    deleted = await to.ask(
        "DeleteRecords", 2, topics=[one("DeleteRecordsRequest.topics", name=topic, partitions=[part])], timeout_ms=5000
    )
    told = deleted.topics[0].partitions[0]
    said["delete records, past an open transaction"] = told.error_code, told.low_watermark
    said["latest after that"] = [await to.latest(here), await to.latest(here, 0)]
    said["committed records after that"] = await to.fetch(here, 4)
    await to.end(second, two_held, True)
    said["all ended"] = await to.until(lambda: to.fetch(here, 4), lambda each: each[1] == each[2] == 8)
    said["committed records in the other partition"] = await to.settled(there, 1)
    said["add: a topic of the server's own"] = [
        await to.add(first, one_held, ("__transaction_state", 0)),
        await to.add(first, one_held, ("__consumer_offsets", 0)),
    ]
    third = to.name("log-3")
    two_held = given(await to.init(second))
    said["produce 12: a topic of the server's own"] = [
        await to.send(second, two_held, ("__transaction_state", 0), 0, version=12),
        await to.send(second, two_held, ("__consumer_offsets", 0), 0, version=12),
    ]
    said["its transaction"] = await to.state(second)
    held = given(await to.init(third))
    said["a compressed batch"] = await to.send(third, held, there, 0, version=12, codec="gzip", count=5)
    said["two transactions of level 2 in a row"] = []
    for commit in (True, False):
        held = given(await to.end(third, held, commit, version=5))
        await to.ended(third)
        said["two transactions of level 2 in a row"].append(await to.send(third, held, there, 0, version=12))
    said["an old epoch, with the next sequence"] = await to.send(third, (held[0], held[1] - 1), there, 1, version=12)
    said["a client of level 0 ends it"] = (await to.end(third, held, True)).error_code
    said["its state"] = await to.state(third)
    said["and goes on"] = [
        await to.add(third, held, there),
        await to.send(third, held, there, 1),
        (await to.end(third, held, False, version=4)).error_code,
    ]
    said["records of the other partition"] = await to.settled(there, 13)
    said["producers of the other partition"] = await to.producers(there)
    return said


async def discovery(to: Server) -> Said:
    """How clients find the coordinator, and learn what it can."""
    versions = await to.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    features = {each.name: (each.min_version_level, each.max_version_level) for each in versions.finalized_features}
    found = await to.ask("FindCoordinator", 4, key_type=1, coordinator_keys=[to.name("a"), to.name("b")])
    bad = await to.ask("FindCoordinator", 3, key=to.name("a"), key_type=7)
    return {
        "features": features.get("transaction.version"),
        "find several": [each.error_code for each in found.coordinators],
        "find: another key type": None if bad is None else bad.error_code,
    }


STORIES: Final[Sequence[Callable[[Server], Awaitable[Said]]]] = (
    *(discovery, producer_ids, level_0, level_2, fencing, timeouts, positions, operators, logs),
)


async def play_script(address: str, run: str = "") -> dict[str, Any]:
    """Every answer of the server at this address, as JSON has it. run: makes names unlike those of other runs."""
    await Server(address, run).ready()
    said: dict[str, Any] = {}
    for number, story in enumerate(STORIES):
        for label, answer in (await story(Server(address, f"-{number}{run}"))).items():
            said[f"{story.__name__}: {label}"] = as_json(answer)
    return said


def as_json(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


# A broker's answers, and a node's
# --------------------------------

ANSWERS: Final = Path(__file__).parents[2] / "vectors" / "transactions" / "answers-4.1.1.json"
"""What a broker of Kafka 4.1.1 answers to the script."""

STAYS: Final = {
    "fencing: state after the fenced one went on": "TX-C4: a fenced producer aborts nothing",
    "logs: its transaction": "TX-L4: a topic of the node comes into no transaction by records that it refuses",
    "operators: mark: a coordinator that comes": "TX-C17: it would keep the true coordinator out",
    "operators: mark: epoch -1": "INVALID_RECORD, where Kafka says UNKNOWN_SERVER_ERROR",
}
"""Differences on purpose."""


def differences(theirs: Said, ours: Said) -> dict[str, tuple[Any, Any]]:
    """By label: the broker's answer and the node's."""
    return {label: (said, ours.get(label)) for label, said in theirs.items() if said != ours.get(label)}


def main(address: str) -> None:
    """Record the answers of the broker at this address."""
    ANSWERS.parent.mkdir(exist_ok=True)
    said = asyncio.run(play_script(address, f"-{time.time_ns():x}"))
    ANSWERS.write_text(
        "{\n" + ",\n".join(f"{json.dumps(label)}: {json.dumps(said[label])}" for label in said) + "\n}\n"
    )
    print(f"{len(said)} answers in {ANSWERS.name}")


if __name__ == "__main__":
    main(sys.argv[1])
