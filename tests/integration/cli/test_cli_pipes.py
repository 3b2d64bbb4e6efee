"""Commands as parts of pipelines: answers come as soon as they can."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pace import pace

pytestmark = pytest.mark.integration
MUSTER = str(Path(sys.executable).with_name("muster"))
PATIENCE_S = 60
PROBLEM = '{"topics":{"t":2},"members":[{"id":"a","topics":["t"]}]}\n'


def test_a_problem_is_answered_before_the_next_one_is_asked() -> None:
    process = subprocess.Popen(
        [MUSTER, "assign", "--assignor", "range"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line, answer in ((PROBLEM, '{"a":{"t":[0,1]}}\n'), ("nonsense\n", "\n"), (PROBLEM, '{"a":{"t":[0,1]}}\n')):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == answer
    _, err = process.communicate(timeout=PATIENCE_S * pace())
    assert process.returncode == 2
    assert err.startswith("error: line 2: not JSON")
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_waits_for_a_node_says_so_and_can_be_stopped(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [MUSTER, "consume", "--topic", "t", "--bootstrap", "127.0.0.1:1", "--set", "default.api.timeout.ms=60000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "looking up topic 't': 127.0.0.1:1 cannot be reached; trying again\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S * pace())
    assert (process.returncode, err.strip()) == (130, "")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", "assign", "--assignor", "range"],
        input=PROBLEM,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * pace(),
        check=True,
    )
    assert json.loads(done.stdout) == {"a": {"t": [0, 1]}}


def test_a_reader_that_takes_one_answer_and_goes_causes_no_traceback() -> None:
    process = subprocess.Popen(
        [MUSTER, "assign", "--assignor", "range"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(PROBLEM)
    process.stdin.flush()
    assert process.stdout.readline()
    process.stdout.close()
    process.stdin.write(PROBLEM)
    process.stdin.close()
    assert process.stderr.read() == ""
    assert process.wait(PATIENCE_S * pace()) == 1
    process.stderr.close()
