"""The pages on the generations: each has its parts, every table of states is the code's own, the index leads to all."""

import importlib
import re
from enum import Enum
from pathlib import Path

import pytest

from muster.cli.workshop import choose_generations, join_row
from muster.client.config import ConsumerConfig, WorkerConfig
from muster.coordinator.config import known_settings
from muster.coordinator.core.central.group import CentralState
from muster.coordinator.core.consumer.group import ConsumerGroupState
from muster.coordinator.core.model.types import DELAYED, Cause
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.workshop.lab.comparison import measure_joins

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "protocol"
GENERATIONS = ["zookeeper", "central", "eager", "static", "cooperative", "delayed", "consumer", "pushed"]
TABLE = re.compile(r"<!-- moves: from ([\w.]+)\.(\w+) -->\n(\| from \| to \|\n.*?)<!-- end of moves -->", re.DOTALL)
"""Two columns; a page that says more in its table has a test of its own."""


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def tables() -> list[tuple[str, str, str, str]]:
    """(page, module, table, what is shown) of every table of moves."""
    return [(path.stem, *found) for path in sorted(PAGES.glob("*.md")) for found in TABLE.findall(path.read_text())]


def word(state: Enum) -> str:
    """States are called by their Kafka word where they have one, else by their own name."""
    value = str(state.value)
    return value if value.isidentifier() and value[0].isupper() else state.name.lower()


def drawn(module: str, table: str) -> str:
    moves = getattr(importlib.import_module(module), table)
    order = list(moves)
    rows = [
        f"| {word(state)} | {', '.join(word(to) for to in order if to in moves[state]) or 'nothing'} |"
        for state in order
    ]
    return "\n".join(["| from | to |", "|---|---|", *rows, ""])


@pytest.mark.parametrize(("name", "module", "table", "shown"), tables())
def test_a_table_of_states_is_drawn_from_the_code(name: str, module: str, table: str, shown: str) -> None:
    assert shown == drawn(module, table), f"write this into {name}.md:\n{drawn(module, table)}"


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_page_has_a_story_a_picture_its_cost_and_its_use(name: str) -> None:
    text = page(name)
    assert re.search(r"^```\n.*?(--|->|<-).*?^```$", text, re.DOTALL | re.MULTILINE), "no picture of the exchange"
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [heading for heading in headings if "cost" in heading]
    assert [heading for heading in headings if "When to use" in heading]
    assert "<!-- moves: from " in text or name == "pushed", "no table of states"


def test_the_index_leads_to_every_page() -> None:
    index = page("README")
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", index))
    assert linked == {path.stem for path in PAGES.glob("*.md")} - {"README"}


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_every_page_that_a_page_names_is_there(path: Path) -> None:
    for target in re.findall(r"\]\(([\w-]+\.(?:md|svg))", path.read_text(encoding="utf-8")):
        assert (PAGES / target).is_file(), f"{path.name} leads to {target}"


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_every_story_and_setting_that_a_page_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for folder in re.findall(r"`(tests/scripts/\w+)/`", text):
        assert list((ROOT / folder).glob("*.txt")), folder
    for story in re.findall(r"`(\w+\.txt)`", text):
        assert list((ROOT / "tests" / "scripts").glob(f"*/{story}")), story
    fields = (*WorkerConfig.model_fields, *ConsumerConfig.model_fields)
    known = {field.replace("_", ".") for field in fields} | known_settings().keys()
    assert set(re.findall(r"`((?:group|scheduled)\.[a-z.]+)[`=]", text)) <= known


@pytest.mark.parametrize(
    ("name", "column", "states"),
    [("central", "group", CentralState), ("consumer", "group state", ConsumerGroupState)],
)
def test_a_page_tells_every_state(name: str, column: str, states: type[Enum]) -> None:
    shown = page(name).partition(f"| {column} | means |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+) \| ", shown, re.MULTILINE) == [state.value for state in states]


def test_the_codes_and_words_of_the_pages_are_those_on_the_wire() -> None:
    codes = re.findall(r"^\| ([A-Z_]{8,})", page("consumer"), re.MULTILINE)
    assert len(codes) >= 8
    assert set(codes) <= ErrorCode.__members__.keys()
    assert f"name is `{DELAYED}`" in page("delayed")
    assert f"`{Cause.DELAY_OVER.name}`" in page("delayed")


def test_the_page_on_central_groups_shows_what_the_lab_finds() -> None:
    shown = [line.split() for line in page("central").splitlines()]
    for costs in measure_joins((10, 50), choose_generations(("central",))):
        row = [str(value) for value in join_row(costs).values()]
        assert row in shown, f"the page is stale: paste what `muster lab join` prints; found {' '.join(row)}"


def test_the_messages_of_the_pages_are_those_of_the_stream() -> None:
    shown = set(re.findall(r"^\| `([a-z_]+)`", page("pushed"), re.MULTILINE))
    streamed = {
        field.name
        for message in (pb.SessionRequest, pb.SessionResponse, pb.SharedSessionRequest, pb.SharedSessionResponse)
        for field in message.DESCRIPTOR.fields
    }
    assert shown <= streamed
    orders = ("Ping", "StopFetcher", "StartFetcher")
    assert all(hasattr(pb, order) and order in page("central") for order in orders)
    assert ledger_pb2.RebalanceOutcome.Name(4) == "REBALANCE_OUTCOME_FAILED"
