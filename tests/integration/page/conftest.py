"""One node with groups for all tests of a module, and one Chromium."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Producer
from tests.support.chromium import (
    ARGUMENTS,
    AXE,
    CHROMIUM,
    EVIL_CLIENT,
    EVIL_GROUP,
    EVIL_TOPIC,
    SETTINGS,
    Seeded,
    Watched,
)
from tests.support.node import running_node


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """Gone with its module: its readers would call through whatever later tests put in a client's place."""
    data = Path(tmp_path_factory.mktemp("page") / "data")
    with ExitStack() as stack:
        node = stack.enter_context(running_node(data, SETTINGS))
        admin = stack.enter_context(Admin(bootstrap_servers=node.address))
        for topic, partitions in (("orders", 6), ("payments", 4), (EVIL_TOPIC, 2)):
            admin.create_topic(topic, partitions)
        with Producer(bootstrap_servers=node.address) as producer:
            for number in range(60):
                producer.send("orders", f"order {number}".encode(), partition=number % 6)
        all_of_it = Seeded(node, admin)
        all_of_it.join("billing", "billing-1", ["orders", "payments"])
        all_of_it.join("billing", "billing-2", ["orders", "payments"])
        all_of_it.join(EVIL_GROUP, EVIL_CLIENT, [EVIL_TOPIC])
        yield all_of_it
        for reader in all_of_it.readers:
            reader.leave()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Closed with its module: while Playwright runs, its thread has a running loop, and no other test can start one."""
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; install it to test the page")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; it drives Chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def watched(chromium: Any, seeded: Seeded) -> Iterator[Watched]:
    watched = Watched(chromium, seeded.url)
    yield watched
    watched.context.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's source, from npm; no part of what is installed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed; it brings axe-core")
    home = tmp_path_factory.mktemp("axe")
    packed = subprocess.run([npm, "pack", "--silent", AXE], cwd=home, capture_output=True, text=True, timeout=60)
    if packed.returncode:
        pytest.skip(f"npm cannot bring {AXE}: {packed.stderr[-200:]}")
    with tarfile.open(home / packed.stdout.split()[-1]) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()
