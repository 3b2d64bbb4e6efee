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
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.S | re.M)
    if not language
    for text in re.split(r"\n(?! )", block.strip())
]
PROPERTIES = [
    dict(line.split("=", 1) for line in re.sub(r"\$\{.*?\}", "secret", block).splitlines())
    for block in re.findall(r"^```properties\n(.*?)^```$", PAGE, re.S | re.M)
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
    for door in (settings.grpc_listener, settings.kafka_listener):
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


def test_settings_of_both_kinds_of_listener_are_taken() -> None:
    """One by which clients log in at the brokers; the same node with one where they show certificates."""
    by_login, by_certificate = PROPERTIES
    more = {"ssl.keystore.location": "node.pem", "engine.kafka.broker.ports": "9100-9131"}
    more |= {"kafka.advertised.listeners": "node-1.example:9093"}
    assert load_settings(None, by_login | more).mechanisms == ("SCRAM-SHA-512",)
    settings = load_settings(None, by_login | by_certificate | more)
    assert settings.engine_kafka_proxy_principal == "User:apps"


def test_how_groups_are_moved_there_and_back_comes_first() -> None:
    """It is the first question of whoever has groups in Kafka, and a group moved client by client is read twice."""
    first = re.findall(r"^## (.*?)\n(.*?)(?=^## )", PAGE, re.S | re.M)[0]
    assert first[0] == "Move groups"
    for said in (
        "never client by client",
        "adopts existing groups by itself",
        "muster engine adopt",
        "muster engine release",
    ):
        assert said in first[1]
