"""A real Kafka that lets a user see little of its groups: what is missing is named, with the commands that grant it."""

import asyncio
import re
import subprocess
from pathlib import Path

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset, commit_offsets
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.interop.kafka_broker import kafka_with_acls
from tests.interop.test_interop_rights import jars, kafka_acls
from tests.support.node import MUSTER

GRANTS = re.compile(r"kafka-acls\.sh --bootstrap-server \S+ (--add .*?)(?=;|\. |\s*$)")
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=x.PlainLoginModule required username="ann" password="ann";
"""


async def make_group(admin: str) -> None:
    """`readers`, with one position and nobody in it."""
    host, _, port = admin.rpartition(":")
    upstream = Upstream(UpstreamAddress((Address(host, int(port)),)))
    topic = struct("CreateTopicsRequest.topics")(name="orders", num_partitions=1, replication_factor=1)
    await upstream.any("CreateTopics", struct("CreateTopicsRequest")(topics=[topic], timeout_ms=30_000))
    assert await commit_offsets(upstream, "readers", {("orders", 0): UpstreamOffset(0)}) == {}
    upstream.close()


def watch(users: str, login: Path) -> "subprocess.CompletedProcess[str]":
    command = [MUSTER, "groups", "list", "--kafka", users, "--command-config", str(login), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)


def test_what_is_missing_is_named_and_the_commands_grant_it(tmp_path: Path) -> None:
    classpath, login = jars(), tmp_path / "ann.properties"
    login.write_text(LOGIN)
    with kafka_with_acls(classpath, tmp_path / "kafka", ["ann"]) as (admin, users):
        asyncio.run(make_group(admin))
        blind = watch(users, login)
        assert "readers" not in blind.stdout
        records, *groups = GRANTS.findall(blind.stderr)
        assert len(groups) == 2
        for grant in groups:
            assert kafka_acls(classpath, admin, grant)[0] == 0
        looked = watch(users, login)
        assert "readers" in looked.stdout
        assert GRANTS.findall(looked.stderr) == [records]
        assert kafka_acls(classpath, admin, records)[0] == 0
        read = watch(users, login)
        assert ("readers" in read.stdout, read.stderr) == (True, "")
