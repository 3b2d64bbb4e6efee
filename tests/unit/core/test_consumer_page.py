"""The page on the consumer protocol names what there is."""

import re
from pathlib import Path

from muster.coordinator.config import known_settings
from muster.coordinator.core.consumer.group import ConsumerGroupState
from muster.coordinator.errors import ErrorCode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol" / "consumer.md").read_text(encoding="utf-8")


def test_the_page_tells_every_state() -> None:
    assert re.findall(
        r"^\| (\w+) \| ", PAGE.partition("| group state | means |")[2].partition("\n\n")[0], re.MULTILINE
    ) == [state.value for state in ConsumerGroupState]


def test_every_code_of_the_page_is_one() -> None:
    codes = re.findall(r"^\| ([A-Z_]{8,})", PAGE, re.MULTILINE)
    assert len(codes) >= 8
    assert all(code in ErrorCode.__members__ for code in codes)


def test_every_setting_of_the_page_is_one() -> None:
    named = set(re.findall(r"`(group\.(?:consumer|assignor)[a-z.]*)`", PAGE))
    assert len(named) >= 4
    assert named <= known_settings().keys()


def test_the_stories_that_the_page_names_are_there() -> None:
    stories = re.findall(r"`(\w+\.txt)`", PAGE)
    assert stories
    assert all((ROOT / "tests" / "scripts" / "consumer" / story).is_file() for story in stories)
