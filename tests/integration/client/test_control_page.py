"""The program of docs/control.md, as it stands there: a zombie, paused by SIGSTOP, is refused by the log."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client import Admin, Consumer
from tests.support.client_stories import PATIENCE_S
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "control.md"
QUICK = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}


def program(section: str) -> tuple[str, list[str]]:
    """The first program below this headline, and what the page says that it prints."""
    told = PAGE.read_text().split(f"\n## {section}", 1)[1]
    found = re.search(r"```python\n(.*?)```\n\n```\n\$ [^\n]*\n(.*?)```", told, re.DOTALL)
    assert found is not None, f"no program below {section!r}"
    return found[1], found[2].splitlines()


def test_a_zombie_is_refused_by_the_log(tmp_path: Path) -> None:
    code, printed = program("Safe handoff")
    zombie = tmp_path / "zombie.py"
    # Six seconds of silence are for people; what the test waits for is the same.
    zombie.write_text(
        code.replace('"session.timeout.ms": 6000', '"session.timeout.ms": 1500, "heartbeat.interval.ms": 300')
    )
    with running_node(tmp_path / "data", QUICK) as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("orders", partitions=1)
            admin.create_topic("bills", partitions=1)
        done = subprocess.run([sys.executable, str(zombie), node.address], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == printed
        assert bills(node) == [b"a bill of the first owner", b"a bill of the second owner"]


def bills(node: NodeProcess) -> list[bytes | None]:
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as reader:
        reader.assign([("bills", 0)])
        read = [reader.poll(PATIENCE_S), reader.poll(PATIENCE_S)]
        assert reader.get_watermark_offsets(("bills", 0)).high == 4, "two bills, and a marker of each owner"
        return [message.value for message in read if message is not None]
