"""The program of README.md that reads, works and writes runs as it stands, and makes each bill once through kills."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer
from muster.client.errors import GroupNotFound
from tests.support.node import NodeProcess, running_node
from tests.support.topics import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ORDERS = 900
TAKEN = [("orders", number) for number in range(3)]
BILLS = [("bills", number) for number in range(2)]


def program_of(page: Path) -> str:
    return next(block for block in PYTHON_BLOCK.findall(page.read_text()) if "send_offsets(consumer)" in block)


def test_both_pages_show_the_same_program() -> None:
    assert program_of(ROOT / "README.md") == program_of(ROOT / "docs" / "transactions.md")


class Biller:
    """The program in a process of its own."""

    def __init__(self, node: NodeProcess, folder: Path) -> None:
        self._script = folder / "billing.py"
        given = f"NODE = {node.address!r}\n\n\ndef bill_of(order):\n    return b'bill of ' + order\n\n\n"
        self._script.write_text(given + program_of(ROOT / "README.md"))
        self._log = folder / "billing.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, str(self._script)], stderr=log, env=environment)

    def kill(self) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def check(self) -> None:
        assert self._process is not None, "it runs"
        assert self._process.poll() is None, self._log.read_text()[-3_000:]


@contextmanager
def billing(biller: Biller) -> Iterator[None]:
    biller.start()
    try:
        yield
    finally:
        biller.kill()


def bury_members(admin: Admin) -> None:
    """Its session would last for 45 s more."""
    with suppress(GroupNotFound):
        admin.remove_members("billing")


def test_each_order_is_billed_once_whatever_is_killed(tmp_path: Path) -> None:
    orders = [b"order %d" % number for number in range(ORDERS)]
    with running_node(tmp_path / "data") as node, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("orders", 3)
        admin.create_topic("bills", 2)
        biller = Biller(node, tmp_path)
        with (
            billing(biller),
            Producer(bootstrap_servers=node.address) as shop,
            Consumer(bootstrap_servers=node.address, group_id="billing") as watch,
        ):
            step = ORDERS // 6
            for round_number in range(6):
                written = sum(watch.end_offsets(BILLS).values())
                for order in orders[round_number * step : (round_number + 1) * step]:
                    shop.produce("orders", order, key=order)
                shop.flush()

                def writes(before: int = written) -> bool:
                    biller.check()
                    return sum(watch.end_offsets(BILLS).values()) > before

                eventually(writes, "the program writes bills")
                if round_number in (0, 2, 4):
                    biller.kill()
                    bury_members(admin)
                    biller.start()
                elif round_number in (1, 3):
                    node.kill()
                    node.start()

            def all_are_done() -> bool:
                biller.check()
                done = watch.committed(TAKEN)
                return {place: at.offset for place, at in done.items() if at is not None} == watch.end_offsets(TAKEN)

            eventually(all_are_done, "the group is behind the last order", 120.0)
        assert sorted(read_committed(node)) == sorted(b"bill of " + order for order in orders)


def read_committed(node: NodeProcess) -> list[bytes]:
    properties = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=node.address, **properties) as reader:
        ends = reader.end_offsets(BILLS)
        reader.assign(BILLS)
        bills: list[bytes] = []
        while any(reader.position(place) < ends[place] for place in BILLS):
            bills += [message.value for message in reader.consume(500, 0.2) if message.value is not None]
    return bills
