"""What a command with --kafka or --segments tells the node that it starts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click
import pytest
from click.testing import CliRunner

from muster.cli.common import watching
from muster.cli.common.commands import CommandError
from muster.coordinator.config import load_settings


def settings_for(group: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of the node that a command about this group starts."""
    made: list[Mapping[str, str]] = []

    @contextmanager
    def started(settings: Mapping[str, str]) -> Iterator[str]:
        made.append(settings)
        yield "127.0.0.1:1"

    @click.command()
    @watching.watching_options
    @click.argument("group")
    def command(bootstrap: str, overrides: dict[str, str], group: str) -> None:
        click.echo(json.dumps(group))

    monkeypatch.setattr(watching, "watching_node", started)
    monkeypatch.setattr(watching, "wait_until_read", lambda *_: None)
    done = CliRunner().invoke(command, ["--kafka", "127.0.0.1:1", group], catch_exceptions=False)
    assert json.loads(done.stdout) == group
    return dict(made[0])


def test_of_a_group_alone_its_partition_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_for("orders-\N{COLLISION SYMBOL}", monkeypatch)["watch.group"] == "orders-\N{COLLISION SYMBOL}"


@pytest.mark.parametrize("group", ["a\nlisteners=0.0.0.0:1", "a\u2028b", "a\\b", " a", "a\r"])
def test_a_group_id_that_fits_no_line_of_properties_is_looked_for_everywhere(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka takes any bytes as an id; a line break would begin another setting."""
    assert "watch.group" not in settings_for(group, monkeypatch)


def test_any_other_setting_that_fits_no_line_is_named() -> None:
    with pytest.raises(CommandError, match=r"watch\.segments"), watching.watching_node({"watch.segments": "a\nb"}):
        pass


def test_what_fits_a_line_is_read_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("node") / "node.properties"
    file.write_text("watch.enable=true\nwatch.segments=x\nwatch.group=a b=c:d # e\n")
    assert watching.fits_a_line("a b=c:d # e")
    assert load_settings(file, {}).watch_group == "a b=c:d # e"
