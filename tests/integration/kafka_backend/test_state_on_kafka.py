"""Groups' state in a real Kafka: kept through kills, fenced by epoch, read in one pass."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.storage.records.batch import encode_written
from tests.support.kafka_backend.over_kafka import OverKafka

ROOT = Path(__file__).parents[3]
SHARDS = 4
ROUNDS = 3
ACKED = 200
"""In each round, before the kill."""


def test_commits_are_there_after_the_next_load(kafka: str) -> None:
    async def story() -> None:
        async with OverKafka(kafka, "loads", SHARDS) as node:
            await node.all_served()
            told = await asyncio.gather(*(node.commit(f"g{number}", number) for number in range(50)))
            assert set(told) == {ErrorCode.NONE}
            assert await node.committed("g7") == 7
            assert {report.owner.turn for report in node.served.values()} == {1}
        async with OverKafka(kafka, "loads", SHARDS) as node:
            await node.all_served()
            assert [await node.committed(f"g{number}") for number in range(50)] == list(range(50))
            assert await node.committed("unheard") == -1
            assert {(report.owner.turn, report.fenced_records) for report in node.served.values()} == {(2, 0)}
            assert all(report.owner.producer.epoch > 0 for report in node.served.values()), "the one before is fenced"

    asyncio.run(story())


def test_nothing_acknowledged_is_lost_by_kills(kafka: str) -> None:
    acked: dict[str, int] = {}
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kafka_backend.over_kafka", kafka, "kills", str(SHARDS), "12"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        try:
            for line, _ in zip(child.stdout, range(ACKED), strict=False):
                heard(line, acked)
        finally:
            child.kill()
        for line in child.stdout:  # what it had told before it died
            heard(line, acked)
        child.wait()

        async def look() -> None:
            async with OverKafka(kafka, "kills", SHARDS, instance="look") as node:
                await node.all_served()
                for group, offset in acked.items():
                    assert await node.committed(group) >= offset, group

        asyncio.run(look())
    assert sum(acked.values()) >= ROUNDS * ACKED - ROUNDS


def heard(line: str, acked: dict[str, int]) -> None:
    group, _, offset = line.strip().partition(" ")
    if offset:
        acked[group] = int(offset)


def test_a_second_process_fences_the_first_which_then_answers_nobody(kafka: str) -> None:
    async def story() -> None:
        async with OverKafka(kafka, "fences", SHARDS, instance="first") as first:
            await first.all_served()
            assert await first.commit("g", 1) is ErrorCode.NONE
            async with OverKafka(kafka, "fences", SHARDS, instance="second") as second:
                await second.all_served()
                assert await second.committed("g") == 1
                assert await first.commit("g", 2) is ErrorCode.NOT_COORDINATOR
                assert len(first.fenced) == 1, "the others have not written since"
                assert await second.commit("g", 3) is ErrorCode.NONE
                assert await second.committed("g") == 3
                await asyncio.gather(*(first.commit(f"g{number}", 9) for number in range(20)))
                assert first.fenced == set(range(SHARDS))
                assert len(second.served) == SHARDS, "and nobody fences him back"
            assert first.alone.mine == frozenset()

    asyncio.run(story())


def test_a_shard_is_shown_with_its_owners_and_who_is_void(kafka: str) -> None:
    async def story() -> None:
        async with OverKafka(kafka, "shown", 1) as node:
            await node.all_served()
            await node.commit("g", 1)
            first = node.served[0].owner.producer
            async with OverKafka(kafka, "shown", 1, instance="two") as other:
                await other.all_served()
                # As if nobody had fenced him: what he writes is in the log, behind another's owner record.
                stranger = await record_requests.init_producer(node.upstream, "shown.stranger")
                batch = encode_written([(b"k", b"v", 0)], 0, producer=(stranger.producer_id, stranger.epoch, 0))
                leader = node.upstream.leader(node.topic, 0)
                told = await record_requests.produce(node.upstream, leader, {(node.topic, 0): batch}, 5_000)
                assert told[node.topic, 0].code == 0
                assert first.epoch < other.served[0].owner.producer.epoch

    asyncio.run(story())
    command = ["log", "dump", "--engine", f"kafka://{kafka}", "--set", "engine.kafka.cluster=shown", "--shard", "0"]
    ran = subprocess.run(
        [sys.executable, "-m", "muster.cli", *command, "--json"], capture_output=True, text=True, timeout=60
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(row["is"], row.get("turn")) for row in rows] == [
        ("owner", 1),
        ("counts", None),
        ("owner", 2),
        ("counts", None),
        ("void", None),
    ], ran.stderr
    command[-1] = "9"
    ran = subprocess.run([sys.executable, "-m", "muster.cli", *command], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "shown.state has no shard 9; expected 0 to 0" in ran.stderr) == (1, True), ran.stderr


def test_what_a_stranger_wrote_behind_an_owner_is_passed_over_and_written_again_as_it_was(kafka: str) -> None:
    async def story() -> None:
        async with OverKafka(kafka, "mends", 1) as node:
            await node.all_served()
            await node.commit("g", 5)
            key = await the_only_key_of_a_position(node)
            stranger = await record_requests.init_producer(node.upstream, "mends.stranger")
            batch = encode_written([(key, None, 0)], 0, producer=(stranger.producer_id, stranger.epoch, 0))
            await record_requests.produce(
                node.upstream, node.upstream.leader(node.topic, 0), {(node.topic, 0): batch}, 5_000
            )
        async with OverKafka(kafka, "mends", 1, instance="two") as node:
            await node.all_served()
            assert (node.served[0].fenced_records, node.served[0].repaired) == (1, 1)
            assert await node.committed("g") == 5
        async with OverKafka(kafka, "mends", 1, instance="three") as node:
            await node.all_served()
            assert await node.committed("g") == 5

    asyncio.run(story())


async def the_only_key_of_a_position(node: OverKafka) -> bytes:
    found = [
        record.key
        async for some in record_requests.read_log(node.upstream, node.topic, 0, 0, 2, deadline_s=10)
        for batch in some
        for record in batch.records()
        if record.key is not None and record.key[:1] == b"\0"
    ]
    (key,) = found
    assert key is not None
    return key
