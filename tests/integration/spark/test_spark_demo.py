"""The Spark demo on real processes: a cluster, an executor killed in mid-stream, and an exact result."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pace import pace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

LINES = 4_000
PATIENCE_S = 300


def test_an_executor_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"job {number % 17} took {number * 7919 % 101} ms\n" for number in range(LINES)))
    muster = str(Path(sys.executable).with_name("muster"))
    done = subprocess.run(
        [muster, "demo", "--spark", "--input", str(file), "--partitions", "5"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * pace(),
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SIGKILL to an executor \(pid \d+\) while 2 tasks ran", done.stdout), done.stdout
    assert re.search(r"executor \d+ was killed \((\d+ tasks?|no task) failed", done.stdout), done.stdout
    assert "batch 7: " in done.stdout
    assert f"{LINES * 5:,} words" in done.stdout
    assert "exact: 0 words differ" in done.stdout


def test_options_for_workers_are_refused() -> None:
    muster = str(Path(sys.executable).with_name("muster"))
    done = subprocess.run([muster, "demo", "--spark", "--workers", "2"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--workers is about workers" in done.stderr
