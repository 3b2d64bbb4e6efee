"""docs/clients.md names nothing that the clients do not have, and forgets nothing that they have."""

import re
from pathlib import Path

import pytest

import muster
from muster.client.records.positions import describe_missing_topics

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
NAMED = set(re.findall(r"`(Consumer|Producer|Message)\.(\w+)", PAGE))
OURS_ALONE = {"unsubscribe", "assign", "unassign", "fencing_token", "topic_partition"}
"""What has no counterpart, or the same name everywhere."""


def test_every_name_on_the_page_can_be_had() -> None:
    assert len(NAMED) > 30
    assert [name for owner, name in sorted(NAMED) if not hasattr(getattr(muster, owner), name)] == []


def test_every_method_of_the_consumer_is_on_the_page() -> None:
    has = {name for name in vars(muster.Consumer) if not name.startswith("_")}
    assert has - {name for owner, name in NAMED if owner == "Consumer"} - OURS_ALONE == set()


def test_the_sentence_of_a_missing_topic_is_the_client_s() -> None:
    assert describe_missing_topics(["orders"]) in PAGE


def test_a_value_that_is_called_says_what_the_page_says() -> None:
    message = muster.Message("t", 0, 0, 0, None, b"x")
    with pytest.raises(TypeError) as refusal:
        message.value()  # type: ignore[operator,misc]
    assert f"*{refusal.value}*" in PAGE
