"""The groups of another broker by the command line: read over Kafka's protocol, and from copies of its segments.

The broker is a Muster node: what it says of its own groups is the measure.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer, Producer
from muster.coordinator.kafka_backend.upstream.protocol import READING_APIS
from muster.storage.records.batch import encode_written
from muster.workshop.bench.watch_load import NO_PRODUCER, group_record, position_keys, position_value
from tests.support.kafka.wire_tap import WireTap
from tests.support.node import MUSTER, NodeProcess, running_node

pytestmark = pytest.mark.integration


def muster(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([MUSTER, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if not code else done.stderr


@pytest.fixture(scope="module")
def tap() -> Iterator[WireTap]:
    """The way to the broker's Kafka listener: its own clients go by gRPC, so all that passes comes from who watches."""
    made = WireTap()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, tap: WireTap) -> Iterator[NodeProcess]:
    """With a group that had two members, one after the other joining, and none now."""
    data = tmp_path_factory.mktemp("broker") / "data"
    settings = {
        "kafka.listeners": "127.0.0.1:0",
        "kafka.advertised.listeners": tap.address,
        "offsets.topic.num.partitions": "2",
    }
    with running_node(data, settings) as node:
        tap.start(node.kafka_address)
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("orders", 4)
        with Producer(bootstrap_servers=node.address) as producer:
            for number in range(8):
                producer.send("orders", b"x", partition=number % 4)
        with ExitStack() as stack:
            members: list[Consumer] = []
            for name in ("first", "second"):
                given = {"client.id": name, "auto.offset.reset": "earliest", "group.protocol": "classic"}
                more = {"bootstrap.servers": node.address, "partition.assignment.strategy": "range", "group.id": "g"}
                members.append(stack.enter_context(Consumer(given | more)))
                members[-1].subscribe(["orders"])
                while not all(len(member.assignment()) == 4 // len(members) for member in members):
                    for member in members:
                        member.poll(0.05)
                for member in members:
                    member.commit()
            members[1].close()
            while len(members[0].assignment()) < 4:
                members[0].poll(0.05)
        yield node


def told(document: str) -> list[tuple[int, str, str, set[str]]]:
    """Of each rebalance: generation, cause, who set it off, and which partitions moved to whom."""
    return [
        (
            entry["generation"],
            entry["cause"],
            entry["culprit_client_id"],
            {f"{move['topic']}-{move['partition']} {move['source']} {move['target']}" for move in entry["moves"]},
        )
        for entry in json.loads(document)
    ]


def test_the_broker_and_who_reads_its_records_say_the_same(broker: NodeProcess) -> None:
    own = muster("groups", "explain", "g", "--entries", "-o", "json", "--bootstrap", broker.address)
    watched = muster("groups", "explain", "g", "--entries", "-o", "json", "--kafka", broker.kafka_address)
    assert told(watched) == [each for each in told(own) if each[1] != "POSITIONS"]
    assert {entry["source"] for entry in json.loads(watched)} == {"watched"}


def test_copies_of_segments_tell_what_the_broker_s_log_told(broker: NodeProcess, tmp_path: Path) -> None:
    for folder in broker.data.glob("__consumer_offsets-*"):
        shutil.copytree(folder, tmp_path / folder.name)
    copied = muster("groups", "explain", "g", "--entries", "-o", "json", "--segments", str(tmp_path))
    read = muster("groups", "explain", "g", "--entries", "-o", "json", "--kafka", broker.kafka_address)
    assert json.loads(copied) == json.loads(read)


def test_a_watching_node_answers_as_any_node_and_changes_nothing(broker: NodeProcess, tmp_path: Path) -> None:
    settings = {"engine": f"kafka://{broker.kafka_address}", "watch.enable": "true"}
    with running_node(tmp_path / "watching", settings) as node:
        assert muster("health", "--bootstrap", node.address, "--timeout", "60").strip() == "SERVING"
        rows = json.loads(muster("groups", "describe", "g", "-o", "json", "--bootstrap", node.address))
        assert {(row["topic"], row["partition"]) for row in rows} == {("orders", number) for number in range(4)}
        assert all(row["lag"] >= 0 for row in rows)
        refused = muster("groups", "delete", "g", "--bootstrap", node.address, code=2)
        assert "watches the groups of a Kafka and coordinates none" in refused
    assert "g" in muster("groups", "list", "--bootstrap", broker.address)


def test_every_reading_command_answers_for_a_group_with_members(broker: NodeProcess) -> None:
    """Only that group's partition is read: nothing may ask for the groups of others."""
    given = {"bootstrap.servers": broker.address, "group.id": "alive", "client.id": "one", "group.protocol": "classic"}
    with Consumer(given) as member:
        member.subscribe(["orders"])
        while len(member.assignment()) < 4:
            member.poll(0.05)
        member.commit()
        kafka = ("--kafka", broker.kafka_address)
        for command in ("describe", "members", "explain", "history"):
            assert "one" in muster("groups", command, "alive", *kafka), command
        assert "Stable" in muster("groups", "describe", "alive", "--state", *kafka)
        assert "same" in muster("replay", "--group", "alive", *kafka)
        assert "one-" in muster("simulate", "--group", "alive", "--assignor", "roundrobin", *kafka)
        assert "Nothing to change" in muster("advise", "alive", *kafka)
        assert "alive" in muster("top", "--once", *kafka)


def test_rebalances_of_another_broker_are_told_as_they_happen(broker: NodeProcess) -> None:
    words = ("groups", "watch", "followed", "--kafka", broker.kafka_address, "--every", "0.1")
    with subprocess.Popen([MUSTER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "waiting" in watching.stderr.readline()
        given = {"bootstrap.servers": broker.address, "group.id": "followed", "client.id": "one"}
        with Consumer(given | {"group.protocol": "classic"}) as member:
            member.subscribe(["orders"])
            while len(member.assignment()) < 4:
                member.poll(0.05)
            assert "member joined   by one" in watching.stdout.readline()
        assert "by one" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0


def test_nothing_is_asked_of_the_broker_that_would_change_it(broker: NodeProcess, tap: WireTap, tmp_path: Path) -> None:
    for command in (("list",), ("explain", "g")):
        muster("groups", *command, "--kafka", tap.address)
    subprocess.run([MUSTER, "doctor", "--kafka", tap.address], capture_output=True, timeout=100, check=False)
    settings = {"engine": f"kafka://{tap.address}", "watch.enable": "true", "watch.poll.ms": "10"}
    with running_node(tmp_path / "watching", settings) as node:
        muster("health", "--bootstrap", node.address, "--timeout", "60")
        muster("groups", "delete", "g", "--bootstrap", node.address, code=2)
    seen, allowed = set(tap.asked), {"DescribeCluster", *READING_APIS}
    assert seen >= {"ApiVersions", "Metadata", "ListOffsets", "Fetch", "ListGroups"}
    assert seen <= allowed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kafka", "127.0.0.1:1"), "no broker"),
        (("--segments", "nothing-is-here"), "does not exist; expected a __consumer_offsets-N folder"),
        (("--kafka", "a:1", "--segments", "b"), "name two sources"),
        (("--since", "1h"), "go with --kafka or --segments"),
        (("--segments", ".", "--broker-log", "no-log"), ""),
    ],
)
def test_a_source_that_is_none_is_told_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = subprocess.run(
        [MUSTER, "groups", "list", *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode in (1, 2, 4)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def advise_from_segments(folder: Path, rates: Sequence[float], commits_a_second: float) -> list[dict[str, Any]]:
    """What is advised on a group of five members with two partitions each, from the ten minutes in which they read so
    many records of each partition a second."""
    home = folder / "__consumer_offsets-7"
    home.mkdir()
    begin_ms = int(time.time() * 1000) - 600_000
    made: list[tuple[list[Any], int]] = [([group_record(3, 2, begin_ms)], begin_ms)]
    for tick in range(int(600 * commits_a_second)):
        past_s = tick / commits_a_second
        at_ms = begin_ms + int(past_s * 1000)
        positions = (position_value(int(rate * past_s), at_ms) for rate in rates)
        made.append(([(key, value, ()) for key, value in zip(position_keys(3), positions, strict=True)], at_ms))
    data, offset = [], 0
    for records, at_ms in made:
        data.append(offset.to_bytes(8, "big") + encode_written(records, at_ms, producer=NO_PRODUCER)[8:])
        offset += len(records)
    (home / f"{0:020}.log").write_bytes(b"".join(data))
    done = subprocess.run(
        [MUSTER, "advise", "-o", "json", "--exit-zero", "--segments", str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (told_of,) = json.loads(done.stdout)
    found: list[dict[str, Any]] = told_of["advice"]
    return found


def test_a_group_that_commits_each_record_is_told_so_from_copies_of_segments(tmp_path: Path) -> None:
    (advice,) = advise_from_segments(tmp_path, [10.0] * 10, 10)
    assert advice["kind"] == "frequent-commits"
    assert advice["sentence"].startswith("Commit less often: 100 positions a second are committed")
    assert advice["settings"] == ["enable.auto.commit=true", "auto.commit.interval.ms=5000"]
    assert "100% of all records in __consumer_offsets-7 are its own" in advice["proof"]
    assert "one commit for each 1.0 records that were read" in advice["proof"]


def test_a_skewed_group_is_told_what_plans_by_load_would_make_of_it(tmp_path: Path) -> None:
    advice, hot = advise_from_segments(tmp_path, [90.0, 60.0, *[5.0] * 8], 0.2)
    assert (advice["kind"], hot["kind"]) == ("skew", "hot-partition")
    assert hot["sentence"].startswith("Spread the keys of orders-3-0: 47% of all records")
    assert advice["settings"] == ["muster engine adopt payments-3", "muster groups set payments-3 assignor=lag-sticky"]
    assert "the heaviest member read 150 records a second, 3.9 times the mean" in advice["sentence"]
    assert "by lag-sticky it would have been 9" in advice["sentence"]
    assert "nobody knows here where logs end" in advice["proof"][-1]


def test_a_group_that_reads_evenly_and_commits_as_by_default_is_well(tmp_path: Path) -> None:
    assert advise_from_segments(tmp_path, [50.0] * 10, 0.2) == []
