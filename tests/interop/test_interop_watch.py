"""A real Kafka that lets a user see little of its groups: what is missing is named, with the commands that grant it.
And one where users log in with SCRAM, by TLS, as `docs/watch.md` says it."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset, commit_offsets
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.interop.kafka_broker import java_with, kafka_with_acls, kafka_with_scram
from tests.interop.test_interop_rights import jars, kafka_acls
from tests.support.certificates import authority, server, write
from tests.support.kafka_backend.secured import make_scram_users
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


PAGE = Path(__file__).parents[2] / "docs" / "watch.md"
GRANTED_BY_PAGE = re.compile(r"kafka-acls\.sh --bootstrap-server \S+ ((?:\\\n|[^\n])+)")
WITH_LOGIN = re.compile(r"^muster (.* --command-config client\.properties)$", re.MULTILINE)


def test_the_login_of_the_page_opens_a_kafka_that_asks_for_scram_by_tls(tmp_path: Path) -> None:
    """The page's own grants, file and commands; the file is one that Kafka's tools take, too."""
    classpath, page = jars(), PAGE.read_text()
    ca = write(tmp_path, "ca.pem", authority().certificate_pem)
    file = page.split("```properties\n")[1].split("```")[0]
    (tmp_path / "client.properties").write_text(file.replace("/etc/kafka/ca.pem", ca))
    grants = [each.replace("\\\n", " ") for each in GRANTED_BY_PAGE.findall(page)]
    explain, watch_all = WITH_LOGIN.findall(page)
    keystore = write(tmp_path, "server.pem", server().pem())
    with kafka_with_scram(classpath, tmp_path / "kafka", keystore) as (admin, users):
        asyncio.run(make_group(admin))
        make_scram_users(admin, ["watcher"], "secret")
        assert [kafka_acls(classpath, admin, grant)[0] for grant in grants] == [0, 0]
        tool = [*java_with(classpath), "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"]
        tool += ["--bootstrap-server", users, "--command-config", "client.properties", "--timeout", "120000"]
        listed = subprocess.run(tool, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True)
        assert listed.stdout.split() == ["readers"], listed.stdout
        command = [MUSTER, *explain.replace("b1:9093", users).replace("orders", "readers").split(), "-o", "json"]
        explained = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True)
        assert (json.loads(explained.stdout)["rebalances"], explained.stderr) == ([], "")
        command = [MUSTER, *watch_all.replace("b1:9093", users).split(), "--announce", "--until-eof", "--http", ""]
        command += ["--listen", "127.0.0.1:0"]
        node = subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        with node:
            assert node.stdin is not None
            assert node.stdout is not None
            try:
                port = json.loads(node.stdout.readline())["port"]
                asking = [MUSTER, "groups", "list", "--bootstrap", f"127.0.0.1:{port}", "-o", "json"]
                told = subprocess.run(asking, capture_output=True, text=True, timeout=200, check=True)
                assert "readers" in told.stdout
            finally:
                node.stdin.close()
