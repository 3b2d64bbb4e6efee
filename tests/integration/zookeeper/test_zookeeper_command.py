"""`muster zookeeper` from outside: start, status and stop of a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.java import JavaNotFound, find_java
from coordinator.zookeeper.ensemble import find, make
from coordinator.zookeeper.errors import ZooKeeperError

MUSTER = str(Path(sys.executable).with_name("muster"))


def muster(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([MUSTER, "zookeeper", *words], capture_output=True, text=True, timeout=90, check=False)


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
        assert find(tmp_path / "zk").connect == connect
        shown = json.loads(muster("status", "--data", data, "-o", "json").stdout)
        assert [(row["address"], row["mode"]) for row in shown] == [(connect, "standalone")]
        again = muster("start", "--data", data)
        assert (again.returncode, connect in again.stderr) == (5, True)
        assert muster("start", "--data", data, "--nodes", "3").returncode == 1
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


def test_a_folder_without_a_server_is_named(tmp_path: Path) -> None:
    asked = muster("stop", "--data", str(tmp_path / "no"))
    assert asked.returncode == 1
    assert "no holds no ZooKeeper; expected a folder" in asked.stderr


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    first = make(tmp_path / "a")
    first.start()
    try:
        second = make(tmp_path / "b", port=first.servers[0].port)
        with pytest.raises(ZooKeeperError, match="cannot be taken"):
            second.start()
        # It never ran, so it may still be made otherwise.
        assert len(make(tmp_path / "b", nodes=3).servers) == 3
    finally:
        first.stop()


def test_an_unreadable_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "ensemble.json").write_text("{}")
    with pytest.raises(ZooKeeperError, match=r"ensemble\.json cannot be read"):
        find(tmp_path)
