"""The pages on delayed groups and on assignment by the coordinator name what there is."""

import re
from pathlib import Path

import pytest

from muster.client.config import WorkerConfig
from muster.coordinator.config import known_settings
from muster.coordinator.core.model.types import DELAYED, Cause

ROOT = Path(__file__).parents[3]
PAGES = ["delayed", "remote"]


@pytest.mark.parametrize("page", PAGES)
def test_every_story_folder_and_property_of_the_page_exists(page: str) -> None:
    text = (ROOT / "docs" / "protocol" / f"{page}.md").read_text(encoding="utf-8")
    folders = re.findall(r"`(tests/[a-z/]+)/`", text)
    assert folders
    assert all(list((ROOT / folder).glob("*.txt")) for folder in folders)
    properties = {field.replace("_", ".") for field in WorkerConfig.model_fields}
    named = set(re.findall(r"`((?:group|scheduled|partition)\.[a-z.]+)", text))
    assert named
    assert named <= properties | known_settings().keys()


def test_the_names_on_the_wire_are_those_of_the_pages() -> None:
    text = (ROOT / "docs" / "protocol" / "delayed.md").read_text(encoding="utf-8")
    assert f"name is `{DELAYED}`" in text
    assert f"`{Cause.DELAY_OVER.name}`" in text
