"""What operators hold of a group: by `muster groups`, over a crash of a real node, with members of a client library."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client import Admin, Consumer
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


def groups(node: NodeProcess, *words: str) -> tuple[int, str, str]:
    arguments = ["groups", words[0], "--bootstrap", node.address, *words[1:]]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_freeze_by_the_command_line_outlives_a_crash(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("t", 4)
        code, _, err = groups(node, "freeze", "g")
        assert (code, "there is no group 'g'" in err) == (3, True)
        first = Consumer(bootstrap_servers=node.address, group_id="g", group_protocol="consumer")
        second = Consumer(bootstrap_servers=node.address, group_id="g", group_protocol="consumer")
        with first, second:
            first.subscribe(["t"])
            poll_until(lambda: len(first.assignment()) == 4, first, what="all of it")
            code, out, err = groups(node, "freeze", "--dry-run", "-o", "json", "g")
            planned = json.loads(out)
            assert (code, planned["holds"][0]["version"], planned["moves"]) == (0, 0, [])
            assert "1 member keeps 4 partitions" in err
            assert "Nothing was changed" in err
            code, out, _ = groups(
                node, "freeze", "--for", "1h", "--version", "0", "--reason", "a storm", "-o", "json", "g"
            )
            version = json.loads(out)[0]["version"]
            assert (code, version > 0) == (0, True)
            assert groups(node, "freeze", "--version", "0", "g")[0] == 5
            node.kill()
            node.start()
            second.subscribe(["t"])
            poll_until(lambda: len(admin.describe_group("g").members) == 2, first, second, what="both are in")
            assert len(first.assignment()) == 4
            code, _, err = groups(node, "describe", "g")
            assert "HELD: freeze until " in err
            code, _, err = groups(node, "resume", "--version", str(version), "g")
            assert (code, err.startswith("the freeze is over")) == (0, True)
            poll_until(lambda: len(second.assignment()) == 2, first, second, what="half of it")
        causes = [e.detail for e in admin.explain("g")]
        assert any("(a storm): 1 member" in detail for detail in causes)
