"""Users made by Kafka's own command, who then log in with Kafka's own client."""

import asyncio
import subprocess
from pathlib import Path

from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.interop.test_interop_rights import jars
from tests.support.logins import user
from tests.support.node import running_node

PASSWORD = "correct horse"
LOGIN = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism={mechanism}
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{name}" password="{password}";
"""


def test_kafka_configs_makes_users_who_log_in(tmp_path: Path) -> None:
    classpath = jars()
    data = tmp_path / "data"
    broker = Broker(data, node_id=1)
    store = SecurityStore(broker)
    store.load()
    asyncio.run(store.write([user("admin", PASSWORD)]))
    broker.close()
    settings = {
        "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer": "acl",
        "super.users": "User:admin;User:bob",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms": "60000",
    }

    with running_node(data, settings) as node:

        def java(tool: str, name: str, password: str, mechanism: str, *arguments: str) -> tuple[int, str]:
            file = tmp_path / f"{name}.properties"
            file.write_text(LOGIN.format(name=name, password=password, mechanism=mechanism))
            ask = ["java", "-cp", classpath, tool, "--bootstrap-server", node.kafka_address]
            done = subprocess.run(
                [*ask, "--command-config", str(file), *arguments],
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            return done.returncode, done.stdout + done.stderr

        def configs(*arguments: str) -> tuple[int, str]:
            users = ("--entity-type", "users", "--entity-name", "bob")
            return java("kafka.admin.ConfigCommand", "admin", PASSWORD, "SCRAM-SHA-512", *users, *arguments)

        def topics(password: str, mechanism: str) -> tuple[int, str]:
            return java("org.apache.kafka.tools.TopicCommand", "bob", password, mechanism, "--list")

        added = configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=battery staple]")
        assert added[0] == 0, added
        assert "iterations=8192" in configs("--describe")[1]
        assert topics("battery staple", "SCRAM-SHA-256")[0] == 0
        code, said = topics("battery staples", "SCRAM-SHA-256")
        assert code != 0
        assert "SaslAuthenticationException" in said
        assert configs("--alter", "--delete-config", "SCRAM-SHA-256")[0] == 0
        assert "iterations" not in configs("--describe")[1]
        assert "SaslAuthenticationException" in topics("battery staple", "SCRAM-SHA-256")[1]
