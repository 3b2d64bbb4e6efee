"""The small cluster ends with its owner, however its owner dies."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.spark.session import processes
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

OWNER = """
import sys
from pathlib import Path
from muster.spark.session import running_cluster

with running_cluster(Path(sys.argv[1]), workers=1):
    print("up", flush=True)
    sys.stdin.read()
"""
PATIENCE_S = 60.0


def jvms_of(pids: frozenset[int]) -> set[int]:
    """Those of `pids` that run still; one that has ended and is not yet reaped has no command."""
    return {pid for pid, _, command in processes() if pid in pids and "org.apache.spark.deploy" in command}


@pytest.mark.parametrize("how", ["killed", "left"])
def test_no_jvm_outlives_its_owner(tmp_path: Path, how: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    started = frozenset(pid for pid, parent, _ in processes() if parent == owner.pid)
    assert len(jvms_of(started)) == 2, "a master and a worker"
    guards = {pid for pid, _, command in processes() if pid in started and "muster.spark.guard" in command}
    assert len(guards) == 1
    if how == "killed":
        owner.kill()
    else:
        owner.stdin.close()
    owner.wait()
    patience = Patience(PATIENCE_S)
    while jvms_of(started) and patience.lasts():
        time.sleep(0.05)
    assert not jvms_of(started)
