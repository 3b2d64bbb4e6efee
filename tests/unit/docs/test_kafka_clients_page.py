"""The page on Kafka's clients shows the APIs and the limits that the code has."""

import re
from collections.abc import Iterable
from pathlib import Path

from muster.coordinator.config import known_settings
from muster.coordinator.kafka.protocol import APIS, Api, transactional_apis

PAGE = Path(__file__).parents[3] / "docs" / "kafka-clients.md"
TABLE = re.compile(r"<!-- apis -->\n(.*?)<!-- end of apis -->", re.DOTALL)
TRANSACTIONAL = re.compile(r"<!-- transactional apis -->\n(.*?)<!-- end of transactional apis -->", re.DOTALL)


def drawn(apis: Iterable[Api]) -> str:
    rows = [f"| {api.name} | {api.key} | {api.first} to {api.last} |" for api in apis]
    return "\n".join(["| API | key | versions |", "|---|---|---|", *rows, ""])


def test_the_table_of_apis_is_drawn_from_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (shown,) = TABLE.findall(page)
    assert shown == drawn(APIS), f"write this into {PAGE.name}:\n{drawn(APIS)}"


def test_the_table_of_transactional_apis_is_drawn_from_the_code() -> None:
    more = drawn(api for api in transactional_apis(2) if api not in APIS)
    (shown,) = TRANSACTIONAL.findall(PAGE.read_text(encoding="utf-8"))
    assert shown == more, f"write this into {PAGE.name}:\n{more}"


def test_every_setting_it_names_is_one() -> None:
    named = set(
        re.findall(r"`((?:kafka|max|connections|socket|log|auto|num|group\.initial)\.[a-z.]+)", PAGE.read_text())
    )
    assert len(named) >= 10
    assert named <= set(known_settings())
