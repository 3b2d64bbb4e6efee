"""`muster demo --cluster`: three nodes, a kill, and nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.coordinator.java_runtime import JavaNotFound, find_java
from tests.support.pace import pace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

PATIENCE_S = 150


def test_the_node_that_coordinates_is_killed_and_nobody_joins_again(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(str(error))
    process = subprocess.run(
        [sys.executable, "-m", "muster", "demo", "--cluster"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * pace(),
        env=os.environ | {"TMPDIR": str(tmp_path), "NO_COLOR": "1"},
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    lines = [line.rstrip() for line in process.stdout.splitlines()]
    assert lines[-1] == "all of it holds"
    assert any(line.startswith("Coordinator moved   node ") for line in lines)
    assert any("members' ids unchanged" in line and "3 of 3" in line for line in lines)
    assert not list(tmp_path.glob("muster-demo-*"))
