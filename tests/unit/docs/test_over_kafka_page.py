"""The commands of docs/over-your-kafka.md are taken as they are printed: none of them is refused for its settings."""

import re
import shlex
from pathlib import Path

import click
import pytest

from muster.coordinator.config import Settings, load_settings
from tests.unit.test_deploy import parsed

PAGE = (Path(__file__).parents[3] / "docs" / "over-your-kafka.md").read_text()
BLOCKS = [
    shlex.split(text.replace("\\\n", " "))[1:]
    for block in re.findall(r"^```\n(.*?)^```", PAGE, re.S | re.M)
    for text in re.split(r"\n(?! )", block.strip())
]
INLINE = [shlex.split(text)[1:] for text in re.findall(r"`(muster [^`]+)`", PAGE)]


@pytest.mark.parametrize("words", [words for words in BLOCKS if words[0] == "serve"], ids=" ".join)
def test_a_node_takes_its_settings(words: list[str]) -> None:
    params = parsed(words)[1]
    given = dict(params["overrides"])
    given |= {
        name: params[option]
        for option, name in {
            "engine": "engine",
            "listen": "listeners",
            "kafka_listen": "kafka.listeners",
            "advertise": "kafka.advertised.listeners",
        }.items()
        if params[option]
    }
    settings = load_settings(None, given)
    assert isinstance(settings, Settings)
    assert settings.upstream == (("b1", 9092), ("b2", 9092))
    for door in (settings.grpc_door, settings.kafka_door):
        if door is not None and door.address.host == "0.0.0.0":
            assert door.encrypted, "no page tells to open a door to everybody"


def test_there_are_some() -> None:
    assert len([words for words in BLOCKS if words[0] == "serve"]) >= 3


@pytest.mark.parametrize("words", INLINE, ids=" ".join)
def test_commands_in_sentences_are_there(words: list[str]) -> None:
    """Some are named without what they are about."""
    given = [re.sub("^NODE$", "1", word) for word in words]
    try:
        parsed(given)
    except click.MissingParameter:
        pass
    except click.exceptions.NoArgsIsHelpError:
        pass
