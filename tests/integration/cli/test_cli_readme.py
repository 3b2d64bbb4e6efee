"""The client example of README.md, run against a node."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client import Admin
from tests.support.node import running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration
README = Path(__file__).parents[3] / "README.md"


def test_the_client_example_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    example = next(block for block in blocks if "Consumer" in block)
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("orders", 6)
        # The example speaks to the default port; here the node has another one.
        example = example.replace("127.0.0.1:9290", node.address)
        example = example.replace('{"group.id"', f'{{"bootstrap.servers": "{node.address}", "group.id"')
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", example],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.wait(60 * pace())
        process.stdout.close()
        with Admin(bootstrap_servers=node.address) as admin:
            left = admin.describe_group("billing")
    assert said[0].startswith("got 6 partitions: MEMBER_JOINED")
    assert said[1] == "b'alice' b'42 apples'\n"
    assert left.members == ()
