"""Plays situations with clients and renders the verdicts as a table."""

import functools
import json
import os
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.truth.clients import Client, NotInstalled
from tests.truth.expectation import Expectation
from tests.truth.judge import RIGHT, WRONG, Verdict, judge
from tests.truth.kafka_itself import KafkaItself
from tests.truth.nodes import SESSION_MS, Backends
from tests.truth.recordings import Recording, batches_about
from tests.truth.scene import Scene, Unplayed
from tests.truth.situations.registry import Situation

SKIPPED, UNPLAYED = "skipped", "unplayed"
AGAIN_S = 0.5
TOLD_S = 3.0
"""How long to wait for the last amendment of an entry."""

MARKS = {
    "right": "right",
    "half": "half",
    "wrong": "WRONG",
    "silent": "silent",
    "unknown": "unknown",
    SKIPPED: "-",
    UNPLAYED: "unplayed",
}


@dataclass(slots=True)
class Cell:
    situation: Situation
    client: Client
    verdict: Verdict
    entries: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    took_s: float = 0.0
    backend: str = "node"
    commit: str = ""
    recording: Recording | None = None


def play(situation: Situation, client: Client, backends: Backends) -> Cell:
    """Play one cell; an error becomes its verdict."""
    started = time.monotonic()
    if refusal := situation.refusal(client, backends.kind):
        return Cell(situation, client, Verdict(SKIPPED, (refusal,)))
    try:
        with backends.node_for(
            situation.settings, own=situation.own, proxied=situation.proxied, brokers=situation.brokers
        ) as node:
            scene = Scene(client, node, f"{situation.name}-{client.name}-{os.getpid()}")
            try:
                cell = judged(situation, client, scene)
            finally:
                scene.end()
    except NotInstalled as reason:
        cell = Cell(situation, client, Verdict(SKIPPED, (str(reason),)))
    except Unplayed as reason:
        cell = Cell(situation, client, Verdict(UNPLAYED, (str(reason),)))
    except Exception:
        cell = Cell(situation, client, Verdict(UNPLAYED, (traceback.format_exc()[-600:],)))
    cell.took_s = time.monotonic() - started
    cell.backend, cell.commit = backends.kind, commit_of_tree()
    return cell


@functools.cache
def commit_of_tree() -> str:
    """The commit of this tree, with a plus sign if the product differs from it; empty outside a repository."""
    root = Path(__file__).parents[2]
    said = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip()


def judged(situation: Situation, client: Client, scene: Scene) -> Cell:
    expected = situation.script(scene)
    if scene.watched:
        expected = expected.from_records()
    deadline = time.monotonic() + TOLD_S
    while time.monotonic() < deadline:
        if judge(scene.recorded(), "", expected, scene.observation()).word == RIGHT:
            break
        time.sleep(AGAIN_S)
    (entries, incidents), text = scene.reported(), scene.text_since_mark()
    verdict = judge(entries, text, expected, scene.observation(), incidents)
    recording = recording_of(situation, client, scene, expected) if isinstance(scene.node, KafkaItself) else None
    return Cell(situation, client, verdict, entries, text, recording=recording)


def recording_of(situation: Situation, client: Client, scene: Scene, expected: Expectation) -> Recording:
    assert isinstance(scene.node, KafkaItself)
    return Recording(
        situation.name,
        client.name,
        scene.node.version,
        scene.group,
        scene.since,
        scene.topic_ids,
        SESSION_MS,
        expected,
        scene.observation(),
        batches_about(scene.group, scene.node.places),
    )


def play_all(
    situations: Sequence[Situation],
    clients: Sequence[Client],
    backends: Backends,
    beside: int,
    on_cell: Callable[[Cell], None],
) -> list[Cell]:
    """Play all cells, `beside` of them at a time, and call `on_cell` with each when it is done."""
    lock = threading.Lock()

    def one(pair: tuple[Situation, Client]) -> Cell:
        cell = play(*pair, backends)
        with lock:
            on_cell(cell)
        return cell

    pairs = [(situation, client) for situation in situations for client in clients]
    with ThreadPoolExecutor(beside) as pool:
        return list(pool.map(one, pairs))


# Layout
# ------


def lines_of_table(cells: Sequence[Cell]) -> list[list[str]]:
    """The heading, then a row for each situation."""
    clients = list(dict.fromkeys(cell.client.name for cell in cells))
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(cell.situation.name, {})[cell.client.name] = MARKS[cell.verdict.word]
    head = ["situation", *clients]
    return [head, *([name, *(verdicts.get(client, "") for client in clients)] for name, verdicts in rows.items())]


def plain_table(cells: Sequence[Cell]) -> str:
    lines = lines_of_table(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(f"{word:<{width}}" for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def markdown_table(cells: Sequence[Cell]) -> str:
    titles = {cell.situation.name: cell.situation.title for cell in cells}
    head, *rows = lines_of_table(cells)
    lines = [head, ["---"] * len(head), *([titles[name], *words] for name, *words in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def json_table(cells: Sequence[Cell]) -> str:
    return json.dumps([document_of(cell) for cell in cells], indent=1)


def document_of(cell: Cell) -> dict[str, Any]:
    return {
        "situation": cell.situation.name,
        "client": cell.client.name,
        "backend": cell.backend,
        "commit": cell.commit,
        "verdict": cell.verdict.word,
        "reasons": cell.verdict.reasons,
        "entries": cell.entries,
        "text": cell.text,
    }


def counts(cells: Sequence[Cell]) -> str:
    found = Counter(cell.verdict.word for cell in cells)
    return ", ".join(f"{found[word]} {word}" for word in MARKS if found[word])


def report_of(cell: Cell, *, verbose: bool) -> str:
    """Verdict and reasons; verbose: also the ledger's entries as text."""
    word = f"SURELY {MARKS[WRONG]}" if cell.verdict.surely_wrong else MARKS[cell.verdict.word]
    lines = [f"{word}: {cell.situation.name} by {cell.client.name} ({cell.took_s:.0f} s)"]
    lines += [f"  - {reason}" for reason in cell.verdict.reasons]
    if verbose and cell.text:
        lines += [f"    {line}" for line in cell.text.splitlines()]
    return "\n".join(lines)
