"""Kafka's own ConfigCommand sets quotas of users, clients and addresses on a node as on Kafka."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.interop.kafka_broker import kafka_broker
from tests.interop.test_interop_rights import jars
from tests.support.node import running_node

COMMANDS = (
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
    "--alter --entity-type users --entity-default --add-config request_percentage=12.5",
    "--alter --entity-type clients --entity-name c --add-config controller_mutation_rate=3.5",
    "--alter --entity-type users --entity-name alice --entity-type clients --entity-name c "
    "--add-config producer_byte_rate=512",
    "--alter --entity-type users --entity-name bob --entity-type clients --entity-default --add-config "
    "producer_byte_rate=256",
    "--alter --entity-type ips --entity-name 10.0.0.7 --add-config connection_creation_rate=5",
    "--alter --entity-type ips --entity-default --add-config connection_creation_rate=50",
    "--describe --entity-type users --entity-name alice",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type clients",
    "--describe --entity-type clients --entity-name c",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type users --entity-name bob --entity-type clients --entity-default",
    "--describe --entity-type ips",
    "--describe --entity-type ips --entity-name 10.0.0.7",
    "--alter --entity-type users --entity-name alice --delete-config consumer_byte_rate",
    "--alter --entity-type users --entity-name alice --delete-config request_percentage",
    "--describe --entity-type users --entity-name alice",
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=0",
    "--alter --entity-type users --entity-name alice --add-config connection_creation_rate=5",
    "--alter --entity-type ips --entity-name nowhere --add-config connection_creation_rate=5",
    "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1.5",
)


def said(classpath: str, address: str, command: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of standard output; of a refusal the class of the error alone."""
    words = ["java", "-cp", classpath, "kafka.admin.ConfigCommand", "--bootstrap-server", address]
    done = subprocess.run([*words, *shlex.split(command)], capture_output=True, text=True, timeout=120, check=False)
    told = re.findall(r"\w+(?:\.\w+)*Exception", done.stdout + done.stderr)
    return done.returncode, sorted(set(told)) or sorted(done.stdout.splitlines())


def test_kafka_s_command_finds_on_a_node_what_it_finds_on_kafka(tmp_path: Path) -> None:
    classpath = jars()
    settings = {"authorizer": "acl", "super.users": "User:ANONYMOUS", "kafka.listeners": "127.0.0.1:0"}
    with kafka_broker(classpath, tmp_path / "kafka") as kafka, running_node(tmp_path / "node", settings) as node:
        for command in COMMANDS:
            assert said(classpath, node.kafka_address, command) == said(classpath, kafka, command), command
