"""What AlterConfigs and IncrementalAlterConfigs ask for, made into changes of the settings that are there; pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from muster.storage.errors import InvalidConfig, InvalidRequest

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Settings: TypeAlias = Mapping[str, str]
Changes: TypeAlias = dict[str, str | None]
"""New values by name; None unsets."""

Asked: TypeAlias = Callable[[Settings, Settings], Changes]
"""From what is set, and what holds (set or not), to the changes."""


def replacing(configs: Iterable[Any]) -> Asked:
    """What AlterConfigs asks for: these settings and no others. Raises InvalidRequest."""
    wanted = {each.name: valued(each) for each in once(configs)}
    return lambda given, _: {**dict.fromkeys(given), **wanted}


def step_by_step(configs: Iterable[Any], lists: frozenset[str]) -> Asked:
    """What IncrementalAlterConfigs asks for (KIP-339). `lists` can be appended to. Raises StorageError."""
    steps = once(configs)
    for each in steps:
        if each.config_operation not in OPERATIONS:
            raise InvalidRequest(
                f"'{each.name}' comes with operation {each.config_operation}; expected 0 (set), 1 (delete), "
                "2 (append) or 3 (subtract)."
            )
        if each.config_operation != DELETE:
            valued(each)
        if each.config_operation in (APPEND, SUBTRACT) and each.name not in lists:
            raise InvalidConfig(
                f"Can't {OPERATIONS[each.config_operation]} to key {each.name} because its type is not LIST; "
                "SET it instead."
            )
    return lambda given, held: {each.name: outcome(each, held) for each in steps}


def outcome(step: Any, held: Settings) -> str | None:
    """The value after one step."""
    if step.config_operation == SET:
        return str(step.value)
    if step.config_operation == DELETE:
        return None
    words, named = words_of(held.get(step.name, "")), words_of(step.value)
    if step.config_operation == APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)


def once(configs: Iterable[Any]) -> list[Any]:
    """The settings of one resource, each named once."""
    found = {each.name: each for each in configs}
    every = list(configs)
    if len(found) < len(every):
        twice = next(each.name for each in every if found[each.name] is not each)
        raise InvalidRequest(f"'{twice}' is named twice for one resource; expected each setting once.")
    return every


def valued(config: Any) -> str:
    if config.value is None:
        raise InvalidRequest(f"'{config.name}' has no value; expected text. To unset it, delete it.")
    return str(config.value)


def words_of(text: str) -> list[str]:
    """The words of a list.

    >>> words_of("delete, compact,")
    ['delete', 'compact']
    """
    return [word.strip() for word in text.split(",") if word.strip()]
