"""`muster zookeeper` from outside: start, status and stop of a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.coordinator.java_runtime import JavaNotFound, find_java
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.local_ensemble import find_ensemble, open_or_create_ensemble

MUSTER = str(Path(sys.executable).with_name("muster"))


def muster(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([MUSTER, "zookeeper", *words], capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(str(error))


def test_a_server_is_started_shown_stopped_and_started_again_as_it_was(tmp_path: Path) -> None:
    data = str(tmp_path / "zk")
    try:
        started = muster("start", "--data", data, "--port", "0")
        assert started.returncode == 0, started.stderr
        connect = started.stdout.strip()
        assert find_ensemble(tmp_path / "zk").connect == connect
        shown = json.loads(muster("status", "--data", data, "-o", "json").stdout)
        assert [(row["address"], row["mode"]) for row in shown] == [(connect, "standalone")]
        again = muster("start", "--data", data)
        assert (again.returncode, connect in again.stderr) == (5, True)
        other = muster("start", "--data", data, "--nodes", "3")
        assert (other.returncode, "holds 1 server(s) from port" in other.stderr) == (1, True)
    finally:
        stopped = muster("stop", "--data", data)
    assert stopped.stderr == "stopped 1 server\n"
    shown_after = muster("status", "--data", data)
    assert shown_after.returncode == 4
    assert "0 of 1 server serve" in shown_after.stderr
    try:
        assert muster("start", "--data", data).stdout.strip() == connect
    finally:
        muster("stop", "--data", data)


def test_an_ensemble_is_started_again_as_it_was_and_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(tmp_path / "zk3")
    try:
        connect = muster("start", "--data", data, "--nodes", "3", "--port", "0").stdout.strip()
        find_ensemble(tmp_path / "zk3").kill(2)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        again = muster("start", "--data", data)
        assert (again.returncode, again.stdout.strip()) == (0, connect), again.stderr
        assert "starting 1 of 3 servers" in again.stderr
        assert f"JAVA_HOME: {tmp_path}/bin/java is not a Java: " in again.stderr
    finally:
        stopped = muster("stop", "--data", data)
    assert stopped.stderr == "stopped 3 servers\n"


def test_a_folder_without_a_server_is_named(tmp_path: Path) -> None:
    asked = muster("stop", "--data", str(tmp_path / "no"))
    assert asked.returncode == 1
    assert "no holds no ZooKeeper; expected a folder" in asked.stderr


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    first = open_or_create_ensemble(tmp_path / "a")
    first.start()
    try:
        second = open_or_create_ensemble(tmp_path / "b", port=first.servers[0].port)
        with pytest.raises(ZooKeeperError, match="cannot be taken"):
            second.start()
        # It never ran: it may still be made otherwise, and the server at its port is not taken for it.
        assert len(open_or_create_ensemble(tmp_path / "b", nodes=3).servers) == 3
        assert second.status()[0].mode == ""
        with pytest.raises(ZooKeeperError, match="holds no ZooKeeper"):
            find_ensemble(tmp_path / "b")
    finally:
        first.stop()


def test_an_unreadable_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "ensemble.json").write_text("{}")
    with pytest.raises(ZooKeeperError, match=r"ensemble\.json cannot be read"):
        find_ensemble(tmp_path)
