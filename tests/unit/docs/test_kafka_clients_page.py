"""The page on Kafka's clients shows the APIs and the limits that the code has."""

import re
from pathlib import Path

from muster.coordinator.config import known_settings
from muster.coordinator.kafka.apis import APIS

PAGE = Path(__file__).parents[3] / "docs" / "kafka-clients.md"
TABLE = re.compile(r"<!-- apis -->\n(.*?)<!-- end of apis -->", re.DOTALL)


def drawn() -> str:
    rows = [f"| {api.name} | {api.key} | {api.first} to {api.last} |" for api in APIS]
    return "\n".join(["| API | key | versions |", "|---|---|---|", *rows, ""])


def test_the_table_of_apis_is_drawn_from_the_code() -> None:
    (shown,) = TABLE.findall(PAGE.read_text(encoding="utf-8"))
    assert shown == drawn(), f"write this into {PAGE.name}:\n{drawn()}"


def test_every_setting_it_names_is_one() -> None:
    named = set(
        re.findall(r"`((?:kafka|max|connections|socket|log|auto|num|group\.initial)\.[a-z.]+)", PAGE.read_text())
    )
    assert len(named) >= 10
    assert named <= set(known_settings())
