"""A client's machine goes away without a word: its connection is found out, its membership ends with its session."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


def test_a_machine_that_vanishes_costs_its_connection_and_no_membership(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("a network of its own needs root, unshare and ip")
    command = ["unshare", "--net", sys.executable, "-m", "tests.support.kafka.vanishing", str(tmp_path / "d")]
    if subprocess.run([*command[:2], "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody have a network of its own")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert "the member is still in its group" in done.stdout
