"""Names out of certificates and rules: any bytes give a name or a refusal, and never half of one."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.config.tls import map_subject, parse_mapping_rules
from muster.coordinator.security.distinguished_names import MalformedName, format_rfc2253

PARTS = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
NAMES = st.lists(st.tuples(st.sampled_from(sorted(PARTS)), TEXTS), min_size=1, max_size=5)


def name(parts: list[tuple[str, str]]) -> bytes:
    return x509.Name([x509.NameAttribute(PARTS[word], text) for word, text in parts]).public_bytes()


def parsed(text: str) -> list[tuple[str, str]]:
    """What stands in a distinguished name as text (RFC 4514), first part first."""
    found, part, at = [], "", 0
    while at <= len(text):
        char = text[at : at + 1]
        if char == "\\" and text[at + 1 : at + 3] == "00":
            part, at = part + "\0", at + 3
        elif char == "\\":
            part, at = part + text[at + 1], at + 2
        elif char in ("", ","):
            word, _, value = part.partition("=")
            found.append((word, value))
            part, at = "", at + 1
        else:
            part, at = part + char, at + 1
    return found[::-1]


@given(NAMES)
def test_what_is_written_is_what_was_there(parts: list[tuple[str, str]]) -> None:
    """No value can pass itself off as another part of the name."""
    assert parsed(format_rfc2253(name(parts))) == parts


@given(st.binary(max_size=200))
def test_any_bytes_are_a_name_or_refused(der: bytes) -> None:
    try:
        format_rfc2253(der)
    except MalformedName:
        return


@given(NAMES, st.data())
def test_a_name_with_a_flaw_is_a_name_or_refused(parts: list[tuple[str, str]], data: st.DataObject) -> None:
    der = bytearray(name(parts))
    der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    try:
        format_rfc2253(bytes(der[: data.draw(st.integers(0, len(der)))]))
    except MalformedName:
        return


@given(st.text(st.sampled_from("RULE:DEFAULT/\\$(1.*?)[^,] LU{}x"), max_size=40), TEXTS)
def test_any_rules_are_refused_or_applied(rules: str, subject: str) -> None:
    for text in (rules, f"RULE:{rules}"):
        try:
            read = parse_mapping_rules(text)
        except ValueError:
            continue
        found = map_subject(subject, read)
        assert found is None or isinstance(found, str)


def test_the_example_of_the_refusal_is_a_rule() -> None:
    with pytest.raises(ValueError, match=r"such as (.*)") as caught:
        parse_mapping_rules("nobody")
    assert parse_mapping_rules(str(caught.value).rpartition("such as ")[2])
