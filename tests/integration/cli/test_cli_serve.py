"""`muster serve` refuses to start where it must, and leaves things as they are."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node import running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration
MUSTER = str(Path(sys.executable).with_name("muster"))
PATIENCE_S = 60


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and what was said of a node that must not start."""
    done = subprocess.run(
        [MUSTER, "serve", "--set", "offsets.topic.num.partitions=4", "--set", "http.listeners=", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * pace(),
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    return done.returncode, done.stderr


def listing(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_unknown_setting_changes_nothing_on_disk(tmp_path: Path) -> None:
    code, said = refused("--data", str(tmp_path / "data"), "--set", "group.max.siz=3")
    assert code == 2
    assert "did you mean group.max.size?" in said
    assert not (tmp_path / "data").exists()


def test_a_foreign_directory_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("chapter one")
    code, said = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert code == 1
    assert "thesis.tex" in said
    assert listing(tmp_path) == {"thesis.tex": b"chapter one"}


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("I am a file")
    code, said = refused("--data", str(file), "--listen", "127.0.0.1:0")
    assert code == 1
    assert str(file) in said
    assert file.read_text() == "I am a file"


def test_a_directory_in_use_is_refused_and_its_node_goes_on(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        before = listing(node.data)
        code, said = refused("--data", str(node.data), "--listen", "127.0.0.1:0")
        assert listing(node.data) == before
        health = subprocess.run(
            [MUSTER, "health", "--bootstrap", node.address], timeout=PATIENCE_S * pace(), check=False
        )
    assert code == 5
    assert "in use by process" in said
    assert health.returncode == 0


def test_a_taken_port_is_refused_before_the_directory_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = refused("--data", str(tmp_path / "data"), "--listen", address)
    assert code == 5
    assert address in said
    assert not (tmp_path / "data").exists()


def test_a_node_ends_with_its_parent(tmp_path: Path) -> None:
    arguments = ["serve", "--announce", "--until-eof", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    arguments += ["--set", "offsets.topic.num.partitions=4", "--set", "http.listeners="]
    process = subprocess.Popen([MUSTER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert json.loads(process.stdout.readline())["event"] == "listening"
    process.stdin.close()
    assert process.wait(PATIENCE_S * pace()) == 0
    process.stdout.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
