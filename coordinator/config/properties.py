"""Reads and writes the properties file, and explains every mistake in it with one sentence.

Values come from the file and from overrides, which win; `${env:NAME}` and `${file:...}` references are resolved here
and never shown. `render_properties` writes the file that sets everything to its default.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NamedTuple

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from muster.coordinator.config.settings import Settings, known_settings
from muster.coordinator.config.tls import LISTENER_NAME, is_listener_setting, listener_settings
from muster.coordinator.config.values import (
    AddressOrNone,
    AssignorNames,
    CollectorText,
    ConnectText,
    FileText,
    HostNames,
    PrincipalNames,
)
from muster.storage.settings_text import BadReference, Resolved, resolve_references, setting_as_text
from muster.storage.settings_text import describe_allowed as in_words


class SettingsError(ValueError):
    """One or more settings are wrong; one line each: where it stood, the value, what was expected."""


class GivenSetting(NamedTuple):
    """A value and where it was written."""

    text: str
    place: str


def load_settings(
    file: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    of_file: Callable[[str], bool] = lambda key: True,
) -> Settings:
    """Settings from a properties file (optional) and overrides, which win. of_file: which of the file's are wanted, by
    their names. Raises SettingsError naming every fault."""
    known = known_settings()
    read_of_file = () if file is None else read_properties(file)
    given = {key: value for key, value in read_of_file if changes_default(key, value, known) and of_file(key)}
    for key, text in (overrides or {}).items():
        given[key] = GivenSetting(text, "--set")
    read = {key: resolve_setting(key, value) for key, value in given.items()}
    of_one = {key: read[key] for key in given if is_listener_setting(key)}
    unknown = [
        describe_unknown_setting(key, value.place, known)
        for key, value in given.items()
        if key not in known and key not in of_one
    ]
    if unknown:
        raise SettingsError("\n".join(unknown))
    values: dict[str, Any] = {key: text for key, text in read.items() if key not in of_one}
    if of_one:
        values[LISTENER_NAME.rstrip(".")] = {key.removeprefix(LISTENER_NAME): text for key, text in of_one.items()}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        places = list(known)
        faults = sorted(
            error.errors(include_url=False), key=lambda fault: [places.index(str(at)) for at in fault["loc"][:1]]
        )
        told = "\n".join(explain_fault(fault, given, known) for fault in faults)
        raise SettingsError(hide_resolved_values(told, read.values())) from None
    settings._references.update({key: text.reference for key, text in read.items() if isinstance(text, Resolved)})
    return settings


def resolve_setting(key: str, value: GivenSetting) -> Any:
    """The value, with what its references stand for. Raises SettingsError, which shows none."""
    try:
        return (
            resolve_references(value.text) if isinstance(value.text, str) else value.text
        )  # programs give numbers, too
    except BadReference as error:
        raise SettingsError(f"{value.place}: {key}: {error}") from None


def hide_resolved_values(told: str, values: Iterable[str]) -> str:
    """What is said of settings, without what was read elsewhere."""
    for value in values:
        if isinstance(value, Resolved) and value:
            told = told.replace(value, value.reference)
    return told


def changes_default(key: str, value: GivenSetting, known: Mapping[str, FieldInfo]) -> bool:
    """Whether a line of a file asks for something: one that spells a default out, as in the file we ship, does not."""
    return key not in known or value.text != (setting_as_text(known[key].default) or "")


def render_properties() -> str:
    """The properties file that sets everything to its default: each sentence, what is allowed, then the line itself."""
    lines = ["# Every setting of a Muster node, at its default. This file is generated from coordinator/config."]
    for name, field in known_settings().items():
        lines += ["", *(f"# {line}" for line in wrap(f"{field.description} Allowed: {expected(field)}.", width=98))]
        lines.append(f"{name}={setting_as_text(field.default) or ''}")
    return "\n".join(lines) + "\n"


def read_properties(file: Path) -> Iterator[tuple[str, GivenSetting]]:
    """The key-value pairs of a Java properties file, without escapes and continued lines. Raises SettingsError."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the settings in {file}: {error}; expected a readable UTF-8 file") from error
    seen: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text, place = line.strip(), f"{file}:{number}"
        if not text or text[0] in "#!":
            continue
        if "\\" in text:
            raise SettingsError(
                f"{place}: {name_of_line(text)} has a backslash; write the value plainly and on one line"
            )
        ends = [at for at in (text.find("="), text.find(":")) if at >= 0]
        if not ends or min(ends) == 0:
            raise SettingsError(f"{place}: {name_of_line(text)} is not a setting; expected key=value")
        key, value = text[: min(ends)].rstrip(), text[min(ends) + 1 :].lstrip()
        if key in seen:
            raise SettingsError(f"{place}: {key} was set before, at {seen[key]}; keep one of the two lines")
        seen[key] = place
        yield key, GivenSetting(value, place)


def name_of_line(line: str) -> str:
    """What is told of a line that is wrong: a setting's name. Anything else may be a secret, or a part of one."""
    name = line.replace(":", "=").partition("=")[0].strip()
    return repr(name) if name in known_settings() else "the line"


def describe_unknown_setting(key: str, place: str, known: Mapping[str, FieldInfo]) -> str:
    near = get_close_matches(key, listener_settings() if key.startswith(LISTENER_NAME) else known, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]}?" if near else "`muster settings` lists all there are"
    return f"{place}: {key} is not a setting of this node; {remedy}"


def explain_fault(fault: Any, given: Mapping[str, GivenSetting], known: Mapping[str, FieldInfo]) -> str:
    """One of pydantic's complaints as a sentence. One without a place is about several settings, and begins with the
    one that is to be looked at."""
    reason = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        first = given.get(reason.partition(" ")[0])
        return reason if first is None else f"{first.place}: {reason}"
    key = str(fault["loc"][0])
    text, place = given.get(key, GivenSetting("", "default"))
    if known[key].annotation is SecretStr:
        return f"{place}: {key} is wrong, and not shown; expected {expected(known[key])} ({reason})"
    detail = f" ({reason})" if fault["type"] == "value_error" else ""
    return f"{place}: {key} is {text!r}, expected {expected(known[key])}{detail}"


ALLOWED_WORDS: Final[Mapping[object, str]] = {
    SecretStr: "a secret, which is never shown, or nothing",
    AssignorNames: "names of assignors, separated by commas",
    PrincipalNames: "principals such as User:alice, separated by semicolons, or nothing",
    FileText: "the path of a file, or nothing",
    ConnectText: "HOST:PORT,HOST:PORT/CHROOT or nothing",
    AddressOrNone: "HOST:PORT or nothing",
    HostNames: "names of hosts, separated by commas, or nothing",
    CollectorText: "http://HOST:PORT or https://HOST:PORT",
    Path: "a directory",
}


def expected(field: FieldInfo) -> str:
    """What the field allows, in words."""
    if isinstance(field.json_schema_extra, Mapping) and "allowed" in field.json_schema_extra:
        return str(field.json_schema_extra["allowed"])
    if field.annotation in ALLOWED_WORDS:
        return ALLOWED_WORDS[field.annotation]
    if field.annotation is str:
        return "HOST:PORT" if field.default else "HOST:PORT or nothing"
    return in_words(field)
