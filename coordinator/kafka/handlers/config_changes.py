"""What AlterConfigs and IncrementalAlterConfigs ask for, made into changes of the settings that are there; pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from muster.storage.errors import InvalidConfig, InvalidRequest

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

ConfigValues: TypeAlias = Mapping[str, str]
ConfigChangeSet: TypeAlias = dict[str, str | None]
"""New values by name; None unsets."""

RequestedChanges: TypeAlias = Callable[[ConfigValues, ConfigValues], ConfigChangeSet]
"""From what is set, and what holds (set or not), to the changes."""


def parse_alter_configs(configs: Iterable[Any]) -> RequestedChanges:
    """What AlterConfigs asks for: these settings and no others. Raises InvalidRequest."""
    wanted = {each.name: config_value(each) for each in unique_configs(configs)}
    return lambda given, _: {**dict.fromkeys(given), **wanted}


def parse_incremental_changes(configs: Iterable[Any], lists: frozenset[str]) -> RequestedChanges:
    """What IncrementalAlterConfigs asks for (KIP-339). `lists` can be appended to. Raises StorageError."""
    steps = unique_configs(configs)
    for each in steps:
        if each.config_operation not in OPERATIONS:
            raise InvalidRequest(
                f"'{each.name}' comes with operation {each.config_operation}; expected 0 (set), 1 (delete), "
                "2 (append) or 3 (subtract)."
            )
        if each.config_operation != DELETE:
            config_value(each)
        if each.config_operation in (APPEND, SUBTRACT) and each.name not in lists:
            raise InvalidConfig(
                f"Can't {OPERATIONS[each.config_operation]} to key {each.name} because its type is not LIST; "
                "SET it instead."
            )
    return lambda given, held: {each.name: apply_step(each, held) for each in steps}


def apply_step(step: Any, held: ConfigValues) -> str | None:
    """The value after one step."""
    if step.config_operation == SET:
        return str(step.value)
    if step.config_operation == DELETE:
        return None
    words, named = split_list(held.get(step.name, "")), split_list(step.value)
    if step.config_operation == APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)


def unique_configs(configs: Iterable[Any]) -> list[Any]:
    """The settings of one resource, each named once."""
    found = {each.name: each for each in configs}
    every = list(configs)
    if len(found) < len(every):
        twice = next(each.name for each in every if found[each.name] is not each)
        raise InvalidRequest(f"'{twice}' is named twice for one resource; expected each setting once.")
    return every


def config_value(config: Any) -> str:
    if config.value is None:
        raise InvalidRequest(f"'{config.name}' has no value; expected text. To unset it, delete it.")
    return str(config.value)


def split_list(text: str) -> list[str]:
    """The words of a list.

    >>> split_list("delete, compact,")
    ['delete', 'compact']
    """
    return [word.strip() for word in text.split(",") if word.strip()]
