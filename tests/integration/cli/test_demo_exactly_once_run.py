"""`muster demo --exactly-once`: a worker and the node die in the middle of transactions, and nothing is left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pace import pace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE_S = 150


def test_a_worker_and_the_node_are_killed_and_each_order_is_billed_once(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "muster", "demo", "--exactly-once"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * pace(),
        env=os.environ | {"TMPDIR": str(tmp_path), "NO_COLOR": "1"},
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    lines = [line.strip() for line in process.stdout.splitlines()]
    assert lines[-1] == "all of it holds: exactly once"
    assert any("worker-1 is killed in the middle of a transaction: its" in line for line in lines)
    assert any("the node is killed in the middle of a transaction of worker-2" in line for line in lines)
    assert any(
        line.startswith("bills, read_committed") and "each order is billed exactly once" in line for line in lines
    )
    assert not list(tmp_path.glob("muster-demo-*"))
