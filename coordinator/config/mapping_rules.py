"""How the subject of a certificate becomes the name of a user: Kafka's rules (KIP-371), read and applied. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BEGINS: Final = "RULE:"
JAVA_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
"""A named group as Java writes it."""

REFERENCE: Final = re.compile(
    r"\\(?P<plain>.)|\$(?P<number>\d+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|(?P<stray>[\\$])", re.S
)
EXAMPLE: Final = "RULE:^CN=([^,]+),.*$/$1/L"


@dataclass(frozen=True, slots=True)
class PrincipalMappingRule:
    """One rule. Without a pattern it is DEFAULT: the name is the whole subject."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""
    """L, U, or neither."""

    def name(self, subject: str) -> str | None:
        """None where the subject does not match as a whole."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # As in Kafka, the match that counts is looked for anew: a pattern that is lazy at its end may match less.
        made = self.pattern.sub(lambda match: fill_replacement(self.replacement, match), subject)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


def parse_mapping_rules(text: str) -> tuple[PrincipalMappingRule, ...]:
    """`DEFAULT` and `RULE:PATTERN/REPLACEMENT/[LU]`, by commas. Raises ValueError.

    >>> [rule.case for rule in parse_mapping_rules("RULE:^CN=(.*?),.*$/$1/L, DEFAULT")]
    ['L', '']
    """
    rules, rest = [], text.strip()
    while rest := rest.lstrip(", \t"):
        rule, rest = parse_first_rule(rest)
        rest = rest.lstrip()
        if rest and not rest.startswith(","):
            raise ValueError(f"{rest[:40]!r} stands behind a rule; expected a comma, or the end")
        rules.append(rule)
    if not rules:
        raise ValueError("there is no rule; write DEFAULT for the whole subject")
    return tuple(rules)


def map_subject(subject: str, rules: Sequence[PrincipalMappingRule]) -> str | None:
    """By the first rule that matches; None where none does.

    >>> map_subject("CN=Duke,OU=Users,C=US", parse_mapping_rules("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L"))
    'duke@users'
    """
    return next((name for rule in rules if (name := rule.name(subject)) is not None), None)


def parse_first_rule(text: str) -> tuple[PrincipalMappingRule, str]:
    """The rule at the beginning, and what follows it."""
    if text.startswith("DEFAULT"):
        return PrincipalMappingRule(), text.removeprefix("DEFAULT")
    if not text.startswith(BEGINS):
        raise ValueError(f"{text[:40]!r} is no rule; expected DEFAULT, or such as {EXAMPLE}")
    pattern, rest = split_at_slash(text.removeprefix(BEGINS))
    replacement, rest = split_at_slash(rest)
    case = rest[:1] if rest[:1] in ("L", "U") else ""
    return PrincipalMappingRule(compile_pattern(pattern, replacement), replacement, case), rest.removeprefix(case)


def split_at_slash(text: str) -> tuple[str, str]:
    """What stands before the next slash without a backslash before it, and what behind it."""
    found = re.match(r"((?:\\.|[^\\/])*)/", text, re.S)
    if found is None:
        raise ValueError(f"{text[:40]!r} lacks a slash; expected RULE:PATTERN/REPLACEMENT/, such as {EXAMPLE}")
    return found[1], text[found.end() :]


def compile_pattern(pattern: str, replacement: str) -> re.Pattern[str]:
    """Java's \\w, \\d and \\s know ASCII only, and so do these."""
    try:
        made = re.compile(JAVA_GROUP.sub("(?P<", pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    for found in REFERENCE.finditer(replacement):
        name = found["name"]
        if found["stray"] or (int(found["number"] or 0) and not made.groups) or (name and name not in made.groupindex):
            raise ValueError(f"{found[0]!r} in {replacement!r} refers to no group of {pattern!r}")
    return made


def fill_replacement(replacement: str, match: re.Match[str]) -> str:
    """The replacement with its groups. A number beyond them stands for itself, as in Kafka."""

    def put(found: re.Match[str]) -> str:
        if (plain := found["plain"]) is not None:
            return plain
        if (name := found["name"]) is not None:
            return match[name] or ""
        digits, most = found["number"], match.re.groups
        used = digits[:1]
        while len(used) < len(digits) and int(digits[: len(used) + 1]) <= most:
            used = digits[: len(used) + 1]
        if int(used) > most:
            return found[0]
        return (match[int(used)] or "") + digits[len(used) :]

    return REFERENCE.sub(put, replacement)
