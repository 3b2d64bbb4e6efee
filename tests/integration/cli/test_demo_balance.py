"""`muster demo --balance` as a newcomer runs it."""

import subprocess
import sys

import pytest


@pytest.mark.integration
def test_a_hot_partition_is_evened_out_and_nothing_oscillates() -> None:
    run = "import sys; from muster.cli.main import main; sys.exit(main(['demo', '--balance']))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times the mean; with" in done.stdout
    assert "none twice: True" in done.stdout
