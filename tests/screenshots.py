"""The pictures of page and terminal in README and docs: `make screenshots` makes them anew from a real node.

`python -m tests.screenshots [DIRECTORY]`
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from muster.client import Admin, Consumer, Producer
from muster.workshop.bench.web_costs import LARGE, StandInNode, make_app
from tests.support.chromium import ARGUMENTS, CHROMIUM, SETTINGS, Seeded, listening, wait_until
from tests.support.node import running_node

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TOPICS = {"orders": 12, "payments": 6, "clicks": 24, "invoices": 2}
WIDE, NARROW = {"width": 1180, "height": 1000}, {"width": 390, "height": 844}
WATCHED_S = 40.0
"""So long a sampler has to look for a line of lag that is one."""


@contextmanager
def written(address: str) -> Iterator[None]:
    """Records come all the while: more clicks than anybody reads."""
    over = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=address, linger_ms=20) as producer:
            number = 0
            while not over.wait(0.05):
                number += 1
                for topic, partitions in TOPICS.items():
                    for each in range(12 if topic == "clicks" else 1):
                        producer.send(topic, b"record", partition=(number * 7 + each * each) % partitions)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def poisoned(address: str) -> Iterator[None]:
    """A consumer that gets on in one partition of `invoices`, and stands before one record of the other."""
    over = threading.Event()

    def read() -> None:
        config = {"bootstrap.servers": address, "group.id": "invoicing", "client.id": "invoice-worker"}
        with Consumer(config, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.subscribe("invoices")
            while not over.wait(0.2):
                records = consumer.poll(0.1)
                at = {tp: consumer.position(tp) for tp in consumer.assignment()} if records else {}
                consumer.commit(offsets={tp: 7 if tp[1] == 1 else offset for tp, offset in at.items()})

    thread = threading.Thread(target=read)
    thread.start()
    yield
    over.set()
    thread.join()


def killed_reader(address: str, group: str, client: str, topics: list[str]) -> subprocess.Popen[bytes]:
    """A member in a process of its own, which can be killed as a machine dies: without a word."""
    command = [str(Path(sys.executable).with_name("muster")), "consume", "--bootstrap", address, "--group", group]
    command += [word for topic in topics for word in ("--topic", topic)]
    command += [
        "--set",
        f"client.id={client}",
        "--set",
        "session.timeout.ms=3000",
        "--set",
        "heartbeat.interval.ms=500",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def told(seeded: Seeded) -> None:
    """Members come, one dies, another takes its place."""
    both = ["orders", "payments"]
    for number in (1, 2):
        seeded.join("billing", f"billing-{number}", both)
    for number in (1, 2, 3):
        seeded.join("clickstream", f"click-worker-{number}", ["clicks"])
    seeded.join("audit", "auditor", ["payments"])
    process = killed_reader(seeded.node.address, "billing", "billing-3", both)
    wait_until(lambda: members(seeded, "billing") == 3 and stable(seeded, "billing"))
    time.sleep(WATCHED_S)
    process.kill()
    process.wait()
    wait_until(lambda: members(seeded, "billing") == 2 and stable(seeded, "billing"))
    time.sleep(3)


def members(seeded: Seeded, group: str) -> int:
    return len(seeded.admin.describe_group(group).members)


def stable(seeded: Seeded, group: str) -> bool:
    return seeded.admin.describe_group(group).state == "Stable"


def taken(chromium: Any, url: str, out: Path, scheme: str, view: dict[str, int], height: int) -> None:
    """One picture of so much of the page."""
    context = chromium.new_context(color_scheme=scheme, viewport=view)
    page = context.new_page()
    page.goto(url)
    if page.locator(".chart").count():
        page.locator(".chart canvas").wait_for()
    part = {"x": 0, "y": 0, "width": view["width"], "height": height}
    page.screenshot(path=str(out), clip=part, full_page=True)
    context.close()


ROOT = Path(__file__).parents[1]
TOP = (80, 18)
"""Columns and rows: as narrow as it may be."""
DOCTOR_COLUMNS = 100
FOREIGN_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def doctor_told(address: str) -> str:
    """What `muster doctor` prints on a terminal with colours."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(DOCTOR_COLUMNS)}
    command = [sys.executable, "-m", "muster", "doctor", "--bootstrap", address]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout


def top_shown(address: str, keys: tuple[str, ...]) -> str:
    """What `muster top` has on a terminal of its own some seconds after these keys."""
    environment = os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-f", os.devnull, "-S", f"{folder}/tmux"]

        def run(*arguments: str) -> str:
            done = subprocess.run([*tmux, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
            return done.stdout.decode()

        size = ("-x", str(TOP[0]), "-y", str(TOP[1]))
        run("new-session", "-d", *size, f"exec {sys.executable} -m muster top --every 1 --bootstrap {address}")
        wait_until(lambda: "billing" in run("capture-pane", "-p"))
        run("send-keys", *keys)
        time.sleep(WATCHED_S / 4)  # trends come with looks
        shown = run("capture-pane", "-e", "-p")
        run("kill-server")
        return shown


def terminal_taken(chromium: Any, told: str, title: str, columns: int, out: Path) -> None:
    """A picture of what a terminal shows, colours as they are."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi(told.rstrip("\n")))
    # The font that the drawing names lies on another host; the reader's own will do.
    drawn = FOREIGN_FONT.sub("", console.export_svg(title=title)).replace("Fira Code", "DejaVu Sans Mono")
    page = chromium.new_page(viewport={"width": 1_180, "height": 1_000})
    page.set_content(f"<body style='margin:0'>{drawn}</body>")
    page.locator("svg").screenshot(path=str(out), omit_background=True)
    page.close()


def main(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
        node = stack.enter_context(running_node(data, SETTINGS))
        admin = stack.enter_context(Admin(bootstrap_servers=node.address))
        for topic, partitions in TOPICS.items():
            admin.create_topic(topic, partitions)
        stack.enter_context(written(node.address))
        stack.enter_context(poisoned(node.address))
        seeded = Seeded(node, admin)
        told(seeded)
        chromium = stack.enter_context(sync_playwright()).chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        for name, path, scheme, view, height in (
            ("page-group", "/groups/billing", "light", WIDE, 1_130),
            ("page-group-dark", "/groups/billing", "dark", WIDE, 1_130),
            ("page-groups", "/", "light", WIDE, 720),
            ("page-what-if", "/groups/clickstream/what-if?assignor=sticky&add=1", "light", WIDE, 900),
            ("page-act", "/groups/billing/act?act=freeze&for_ms=3600000", "light", WIDE, 334),
            ("page-phone", "/groups/billing", "dark", NARROW, 1_100),
        ):
            taken(chromium, seeded.url + path, home / f"{name}.png", scheme, view, height)
        terminal_taken(
            chromium, doctor_told(node.address), "muster doctor", DOCTOR_COLUMNS, home / "terminal-doctor.png"
        )
        if shutil.which("tmux"):
            for name, keys in (("terminal-top", ("j",)), ("terminal-top-group", ("/", *"billing", "Enter", "Enter"))):
                terminal_taken(chromium, top_shown(node.address, keys), "muster top", TOP[0], home / f"{name}.png")
        with listening(make_app(StandInNode(1_000, 10_000, 1_000, time.time_ns() // 1_000_000))) as url:
            taken(chromium, f"{url}/groups/{LARGE}", home / "page-large.png", "light", WIDE, 1_000)
        chromium.close()
        for reader in seeded.readers:
            reader.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
