"""Kafka's own DumpLogSegments reads `__consumer_offsets`, and passes over what only a node keeps there. It reads
`__transaction_state` as a node of each level writes it."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from muster.coordinator.core.model.records import GroupStored, MemberRecord, OffsetStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.own_records import FENCE_KEY, OWN_KINDS, PROBE_KEY
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC
from muster.coordinator.runtime.transaction_shards import BrokerTransactionLog, encode_transactions
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings

OURS = sorted({*OWN_KINDS, PROBE_KEY, FENCE_KEY})
NOW = 1_700_000_000_000
DUMP_S = 120


def dump_command(decoder: str) -> list[str]:
    java, classpath = shutil.which("java"), os.environ.get("KAFKA_BROKER_CLASSPATH")
    if java is None or not classpath:
        pytest.skip("it takes java, and KAFKA_BROKER_CLASSPATH with the jars of a broker ('DIR/*')")
    return [java, "-Xmx256m", "-cp", classpath, "kafka.tools.DumpLogSegments", decoder]


def test_what_only_a_node_keeps_is_passed_over_and_the_rest_is_read(tmp_path: Path) -> None:
    dump = dump_command("--offsets-decoder")
    member = MemberRecord("m", "i", "client", "/host", 60_000, 10_000, b"", b"")
    group = GroupStored("g", "consumer", 7, "range", "m", NOW, (member,))
    positions = [StoredOffset(5, -1, "", NOW, None, topic_id) for topic_id in (b"", b"t" * 16)]
    kafkas = encode([group, *(OffsetStored("g", "t", number, each) for number, each in enumerate(positions))]).groups
    ours = [KeyValue(kind.to_bytes(2, "big") + b"\0\1g", value) for kind in OURS for value in (b'{"version": 1}', None)]
    broker = Broker(tmp_path / "data", LogSettings.from_properties({}))
    BrokerGroupLog(broker, 1, 1 << 20).append(0, [*ours, *kafkas], [], NOW)
    broker.close()

    segment = tmp_path / "data" / f"{GROUPS_TOPIC}-0" / f"{0:020}.log"
    done = subprocess.run([*dump, "--files", str(segment)], capture_output=True, text=True, timeout=DUMP_S)
    assert done.returncode == 0, done.stderr
    passed_over = Counter(map(int, re.findall(r"Unknown record type (\d+) at offset \d+, skipping", done.stdout)))
    assert passed_over == dict.fromkeys(OURS, 2)
    read = [line for line in done.stdout.splitlines() if re.match(r"\| offset: ", line) and "Unknown" not in line]
    assert len(read) == len(kafkas)
    assert sum('"group":"g"' in line for line in read) == len(kafkas), done.stdout


@pytest.mark.parametrize("level", [0, 2])
def test_kafka_reads_what_each_level_writes_of_transactional_ids(tmp_path: Path, level: int) -> None:
    dump = dump_command("--transaction-log-decoder")
    states = [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT]
    stored = [
        TransactionStored("A", 7, 1, 60_000, state, {"t": (0, 1)} if number == 1 else {}, NOW, NOW, 7, -1, level)
        for number, state in enumerate(states)
    ]
    broker = Broker(tmp_path / "data", LogSettings.from_properties({}))
    broker.create_topic(TRANSACTIONS_TOPIC, 1)
    BrokerTransactionLog(broker).append(
        0, encode_transactions([*stored, TransactionExpired("B")], level).groups, [], NOW
    )
    broker.close()

    segment = tmp_path / "data" / f"{TRANSACTIONS_TOPIC}-0" / f"{0:020}.log"
    done = subprocess.run([*dump, "--files", str(segment)], capture_output=True, text=True, timeout=DUMP_S)
    assert done.returncode == 0, done.stderr
    told = [line.split(" payload: ")[1] for line in done.stdout.splitlines() if line.startswith("| offset: ")]
    assert len(told) == 4, done.stdout
    assert told[3] == "<DELETE>" or json.loads(told[3]) is None, told[3]
    for payload, each in zip(map(json.loads, told[:3]), stored, strict=True):
        data = payload["data"]
        assert payload["version"] == ("0" if level == 0 else "1"), payload
        assert (data["producerId"], data["producerEpoch"], data["transactionStatus"]) == (7, 1, each.state), payload
        places = [(row["topic"], row["partitionIds"]) for row in data["transactionPartitions"] or ()]
        assert places == ([("t", [0, 1])] if each.partitions else []), payload
