"""The flags of kafka-acls, and which entries they mean."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from muster.cli.common.commands import CommandError
from muster.cli.security.acls import entry_options, make_entries, make_filters, resource_options
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType


def given(*arguments: str) -> dict[str, Any]:
    """What a command with these flags is given."""
    caught: dict[str, Any] = {}

    @click.command()
    @resource_options
    @entry_options
    def command(**words: Any) -> None:
        caught.update(words)

    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return caught


def short(acl: Acl) -> tuple[str, str, str, str, str]:
    return acl.resource_type.name, acl.name, acl.principal, acl.operation.name, acl.permission.name


def test_a_producer_and_a_consumer_need_what_kafka_says() -> None:
    produces = make_entries(given("--allow-principal", "User:a", "--producer", "--topic", "t", "--idempotent"))
    assert {short(acl) for acl in produces} == {
        ("TOPIC", "t", "User:a", "WRITE", "ALLOW"),
        ("TOPIC", "t", "User:a", "DESCRIBE", "ALLOW"),
        ("TOPIC", "t", "User:a", "CREATE", "ALLOW"),
        ("CLUSTER", "kafka-cluster", "User:a", "IDEMPOTENT_WRITE", "ALLOW"),
    }
    reads = make_entries(given("--allow-principal", "User:a", "--consumer", "--topic", "t", "--group", "g"))
    assert {short(acl) for acl in reads} == {
        ("TOPIC", "t", "User:a", "READ", "ALLOW"),
        ("TOPIC", "t", "User:a", "DESCRIBE", "ALLOW"),
        ("GROUP", "g", "User:a", "READ", "ALLOW"),
    }


def test_everything_crosses_with_everything() -> None:
    entries = make_entries(
        given(
            *("--allow-principal", "User:a", "--allow-principal", "User:b", "--allow-host", "10.0.0.1"),
            *("--deny-principal", "User:c", "--operation", "describe_configs", "--operation", "AlterConfigs"),
            *("--topic", "or", "--topic", "x", "--cluster", "--resource-pattern-type", "prefixed"),
        )
    )
    assert len(entries) == 3 * 2 * 3
    assert {(acl.principal, acl.host, acl.permission) for acl in entries} == {
        ("User:a", "10.0.0.1", Permission.ALLOW),
        ("User:b", "10.0.0.1", Permission.ALLOW),
        ("User:c", "*", Permission.DENY),
    }
    assert {acl.pattern for acl in entries if acl.resource_type is ResourceType.TOPIC} == {PatternType.PREFIXED}
    assert {acl.pattern for acl in entries if acl.resource_type is ResourceType.CLUSTER} == {PatternType.LITERAL}
    assert {acl.operation for acl in entries} == {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}


def test_without_an_operation_it_is_all() -> None:
    (entry,) = make_entries(given("--deny-principal", "User:*", "--group", "g"))
    assert short(entry) == ("GROUP", "g", "User:*", "ALL", "DENY")


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(CommandError, match="no resource is named"):
        make_entries(given("--allow-principal", "User:a"))
    with pytest.raises(CommandError, match="--operation is given beside --producer"):
        make_entries(given("--allow-principal", "User:a", "--producer", "--operation", "READ", "--topic", "t"))


def test_resources_alone_mean_all_entries_about_them() -> None:
    (found,) = make_filters(given("--topic", "t", "--resource-pattern-type", "match"))
    assert (found.resource_type, found.pattern, found.name, found.principal) == (
        ResourceType.TOPIC,
        PatternType.MATCH,
        "t",
        None,
    )
    (everything,) = make_filters(given(), "User:a")
    assert everything.principal == "User:a"
    assert everything.resource_type is ResourceType.ANY
