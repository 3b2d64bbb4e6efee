"""Values that stand somewhere else are read from there, and nobody sees them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from muster.cli.nodes.node import setting_rows
from muster.client.config import ConfigError, ConsumerConfig, load
from muster.coordinator.config import Settings, SettingsError, load_settings
from muster.coordinator.kafka.handlers.configs import describe_settings
from muster.coordinator.server.node_events import changed_settings
from muster.storage.service.broker_service import _entries
from muster.storage.settings_text import BadReference, resolve_references

SECRETS: Final = ("hunter2-key-password", "User:hunter2-root", "/var/log/hunter2/audit", "hunter2-of-one-listener")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings that refer to all of SECRETS, in each way."""
    (tmp_path / "muster.properties").write_text(f"# ours\nother = x\n password = {SECRETS[0]}\n", encoding="utf-8")
    (tmp_path / "root").write_text(SECRETS[1] + "\n", encoding="utf-8")
    monkeypatch.setenv("AUDIT_PLACE", "hunter2/audit")
    monkeypatch.setenv("OF_ONE", SECRETS[3])
    return {
        "log.dirs": "/data",
        "ssl.key.password": f"${{file:{tmp_path}/muster.properties:password}}",
        "super.users": f"${{directory:{tmp_path}:root}}",
        "audit.log": "/var/log/${env:AUDIT_PLACE}",
        "kafka.listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": "/etc/muster/node.pem",
        "listener.name.kafka.ssl.key.password": "${env:OF_ONE}",
    }


def outputs(settings: Settings) -> Iterator[str]:
    """Everything that a node, and its tools, say of its settings."""
    yield repr(dict(changed_settings(settings)))
    yield repr(setting_rows(settings))
    yield repr(list(_entries(settings)))
    yield repr(describe_settings("DescribeConfigsResponse.results.configs", settings, settings, {}))
    yield repr(settings.references)


def test_values_are_read_where_they_are(written: dict[str, str]) -> None:
    settings = load_settings(None, written)
    assert settings.ssl_key_password.get_secret_value() == SECRETS[0]
    assert settings.super_users == SECRETS[1]
    assert settings.audit_log == SECRETS[2]
    assert settings.certificates_of("kafka").ssl_key_password.get_secret_value() == SECRETS[3]


def test_nobody_sees_them(written: dict[str, str]) -> None:
    settings = load_settings(None, written)
    for output in outputs(settings):
        for secret in (*SECRETS, "hunter2"):
            assert secret not in output
    told = dict(changed_settings(settings))
    assert told["super.users"] == written["super.users"], "it is shown as it was written"


def test_kafkas_tools_are_told_that_a_value_is_sensitive(written: dict[str, str]) -> None:
    settings = load_settings(None, written)
    entries = {
        each.name: each for each in describe_settings("DescribeConfigsResponse.results.configs", settings, settings, {})
    }
    assert entries["super.users"].is_sensitive
    assert entries["super.users"].value is None
    assert not entries["node.id"].is_sensitive


@pytest.mark.parametrize("name", ["node.id", "super.users", "ssl.client.auth", "ssl.key.password", "log.retention.ms"])
def test_a_wrong_value_is_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "hunter2")
    given = {"log.dirs": "/data", name: "${env:WRONG}"}
    if name == "ssl.key.password":
        given["ssl.client.auth"] = "maybe"
    with pytest.raises(SettingsError) as error:
        load_settings(None, given)
    assert "hunter2" not in str(error.value)


def test_lines_that_are_none_are_not_shown(tmp_path: Path) -> None:
    for line in ("hunter2", "ssl.key.password=hunter2\\"):
        file = tmp_path / "node.properties"
        file.write_text(f"node.id=1\n{line}\n", encoding="utf-8")
        with pytest.raises(SettingsError, match=r"node\.properties:2: ") as error:
            load_settings(file)
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${env:NOT_THERE}", "set NOT_THERE"),
        ("${file:/nowhere/x:password}", "/nowhere/x cannot be read: No such file"),
        ("${file:/nowhere}", r"expected \$\{file:"),
        ("${directory:/run/secrets}", r"expected \$\{directory:"),
        ("${directory:/run:../etc/shadow}", "not a name of a file"),
    ],
)
def test_a_reference_to_nothing_says_where(text: str, why: str) -> None:
    with pytest.raises(BadReference, match=why):
        resolve_references(text, {})
    with pytest.raises(SettingsError, match=rf"--set: super\.users: .*{why}"):
        load_settings(None, {"log.dirs": "/data", "super.users": text})


def test_a_key_that_the_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a=hunter2\n#b=hunter2\n", encoding="utf-8")
    with pytest.raises(BadReference, match="has no line b=") as error:
        resolve_references(f"${{file:{tmp_path}/x:b}}")
    assert "hunter2" not in str(error.value)


def test_what_is_no_reference_stays() -> None:
    assert resolve_references("a$b {c} ${other:x}") == "a$b {c} ${other:x}"


def test_clients_read_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    group = {"group.id": "g"}
    assert load(ConsumerConfig, {**group, "token": "${env:TOKEN}"}, {}).token == "hunter2"
    for name in ("max.poll.records", "group.protocol"):
        with pytest.raises(ConfigError) as error:
            load(ConsumerConfig, {**group, name: "${env:TOKEN}"}, {})
        assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigError, match=r"token: .* set NOT_THERE"):
        load(ConsumerConfig, {**group, "token": "${env:NOT_THERE}"}, {})


def test_a_program_may_give_values_that_are_no_text() -> None:
    assert load_settings(None, {"log.dirs": "/data", "scaler.enable": True}).scaler_enable  # type: ignore[dict-item]
