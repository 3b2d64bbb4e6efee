"""`muster demo` on a small input: the whole story, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pace import pace

pytestmark = pytest.mark.integration
PATIENCE_S = 100
LINES = 3_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Sessions of very different length, so that partitions are skewed."""
    file = tmp_path / "input.log"
    file.write_text("".join(f"session[{(number * number) % 97}] line {number}\n" for number in range(LINES)))
    return file


@pytest.fixture
def own_temp(tmp_path: Path) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    return folder


def start(temp: Path, *arguments: str) -> subprocess.Popen[str]:
    """Beside a folder `storage/`, which is none of Muster's business."""
    (temp.parent / "storage").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "muster", "demo", "--seconds", "2", *arguments],
        cwd=temp.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temp), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    )


def figure(out: str, name: str) -> int:
    found = re.search(rf"^\s*{name}\s+([\d,]+)", out, re.MULTILINE)
    assert found is not None, out
    return int(found[1].replace(",", ""))


def test_a_worker_is_killed_and_no_line_is_lost(log: Path, own_temp: Path) -> None:
    check_demo("cooperative-sticky", log, own_temp)


def test_a_worker_of_an_eager_group_is_killed_and_no_line_is_lost(log: Path, own_temp: Path) -> None:
    check_demo("range", log, own_temp)


def check_demo(assignor: str, log: Path, own_temp: Path) -> None:
    arguments = ("--input", str(log), "--key-regex", r"session\[(\d+)\]", "--assignor", assignor)
    process = start(own_temp, *arguments)
    out, err = process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 0, out + err
    assert err == ""
    assert figure(out, "lines produced") == LINES
    assert figure(out, "distinct lines consumed") == LINES
    assert (figure(out, "lost"), figure(out, "altered"), figure(out, "left to commit")) == (0, 0, 0)
    assert "SIGKILL to worker-2" in out
    assert "cause    session expired   by worker-2 at 127.0.0.1" in out
    assert re.search(r"cause    member joined   by worker-4", out)
    assert f"assignor {assignor}" in out
    assert list(own_temp.iterdir()) == []


def test_a_single_worker_and_a_single_partition_are_enough(log: Path, own_temp: Path) -> None:
    process = start(own_temp, "--input", str(log), "--workers", "1", "--partitions", "1", "--keep")
    out, err = process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 0, out + err
    assert figure(out, "lost") == 0
    kept = next(own_temp.iterdir())
    assert f"kept: {kept}" in err
    assert (kept / "data" / "meta.properties").exists()
    assert (kept / "worker-1.report").stat().st_size > 0


def said_until(process: subprocess.Popen[str], words: str) -> str:
    """Standard output up to the line that has these words."""
    assert process.stdout is not None
    said = ""
    while words not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def test_a_node_that_dies_ends_the_demo_with_its_last_words(log: Path, own_temp: Path) -> None:
    process = start(own_temp, "--input", str(log))
    node = re.search(r"\(pid (\d+)\)", said_until(process, "workers started"))
    assert node is not None
    os.kill(int(node[1]), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 1
    assert "error: node ended unexpectedly with exit code -9" in err
    assert list(own_temp.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_everything_with_it(number: signal.Signals, log: Path, own_temp: Path) -> None:
    process = start(own_temp, "--input", str(log))
    node = re.search(r"\(pid (\d+)\)", said_until(process, "workers started"))
    assert node is not None
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 130
    assert list(own_temp.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(node[1]), 0)


def test_a_demo_that_cannot_begin_leaves_nothing_behind(log: Path, own_temp: Path) -> None:
    process = start(own_temp, "--input", str(log), "--assignor", "stiky")
    process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 2
    assert list(own_temp.iterdir()) == []
