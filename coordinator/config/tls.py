r"""Certificates of listeners, under Kafka's names (KIP-651), and the rules that map a certificate to a user (KIP-371).

Each setting that begins with `ssl.` may have another value for one listener (`listener.name.kafka.ssl...`). Mapping
rules turn a certificate's subject into a user name: `DEFAULT` or `RULE:PATTERN/REPLACEMENT/[LU]`, by commas; the
first that matches counts, and Java's \w, \d and \s mean ASCII only. The rules are read and applied without I/O.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ConfigDict, SecretStr, field_validator

from muster.coordinator.config.values import split_list
from muster.storage.settings_text import SettingsModel, setting

# Mapping rules (KIP-371)
# -----------------------

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
            raise ValueError(f"{rest[:40]!r} follows a rule; expected a comma, or the end")
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
        raise ValueError(f"{text[:40]!r} is not a rule; expected DEFAULT, or such as {EXAMPLE}")
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
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
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


# Certificates
# ------------

REPLICATION: Final = "replication"
"""The door between nodes."""

LISTENER_NAMES: Final = {
    "grpc": "listeners",
    "kafka": "kafka.listeners",
    "http": "http.listeners",
    REPLICATION: "inter.broker.listeners",
}
"""The doors of a node, and the setting that says where each is."""

LISTENER_NAME: Final = "listener.name."
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class BadCertificate(ValueError):
    """A certificate, key or bundle cannot be used; the text says which, where it lies, why, and what to do."""


class CertificateSettings(SettingsModel):
    """What one listener shows, and asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    ssl_keystore_type: Literal["PEM"] = setting(
        "PEM", "The format of certificate and key; Java keystores are not supported."
    )
    ssl_keystore_location: str = setting(
        "",
        "The file with the node's certificate, its chain and its private key; read again when it changes.",
        allowed="a PEM file, or nothing",
    )
    ssl_key_password: SecretStr = setting(SecretStr(""), "The password of the private key, if it is encrypted.")
    ssl_keystore_certificate_chain: str = setting(
        "",
        "The certificate and its chain as text, instead of a file; spaces may stand for line ends.",
        allowed="PEM, or nothing",
    )
    ssl_keystore_key: SecretStr = setting(SecretStr(""), "The private key as text (PKCS #8), instead of a file.")
    ssl_truststore_type: Literal["PEM"] = setting(
        "PEM", "The format of the authorities that may sign client certificates."
    )
    ssl_truststore_location: str = setting(
        "",
        "The file with the certificates of these authorities; read again when it changes.",
        allowed="a PEM file, or nothing",
    )
    ssl_truststore_certificates: str = setting(
        "", "The certificates of these authorities as text, instead of a file.", allowed="PEM, or nothing"
    )
    ssl_client_auth: Literal["none", "requested", "required"] = setting(
        "none",
        "Whether clients show no certificate (none), may show one (requested; not over gRPC), or have to (required).",
    )
    ssl_enabled_protocols: str = setting(
        ",".join(TLS_VERSIONS),
        "The TLS versions that are accepted; gRPC always accepts both.",
        allowed=f"{' and '.join(TLS_VERSIONS)}, by a comma, or one of them",
    )
    ssl_cipher_suites: str = setting(
        "",
        "The cipher suites, by their TLS or OpenSSL names; empty means OpenSSL's defaults (gRPC takes its suites from "
        "the environment variable GRPC_SSL_CIPHER_SUITES only).",
        allowed="names, separated by commas, or nothing",
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "How the subject of a client's certificate becomes a user name, by the first rule that matches: DEFAULT (the "
        "whole subject) or RULE:PATTERN/REPLACEMENT/, followed by L or U for lower or upper case.",
        allowed="Kafka's rules, separated by commas",
    )

    @property
    def tls_versions(self) -> frozenset[str]:
        return frozenset(split_list(self.ssl_enabled_protocols))

    @property
    def certificate_files(self) -> tuple[str, ...]:
        """The files that are read for a handshake."""
        trusted = self.ssl_truststore_location if self.ssl_client_auth != "none" else ""
        return tuple(path for path in (self.ssl_keystore_location, trusted) if path)

    @property
    def mapping_rules(self) -> tuple[PrincipalMappingRule, ...]:
        return parse_mapping_rules(self.ssl_principal_mapping_rules)

    @property
    def cipher_suites(self) -> tuple[str, ...]:
        return split_list(self.ssl_cipher_suites)

    @field_validator("ssl_enabled_protocols")
    @classmethod
    def are_versions_of_tls(cls, value: str) -> str:
        if not split_list(value) or set(split_list(value)) - set(TLS_VERSIONS):
            raise ValueError("older versions are insecure and not supported")
        return value

    @field_validator("ssl_principal_mapping_rules")
    @classmethod
    def are_rules(cls, value: str) -> str:
        parse_mapping_rules(value)
        return value


class TlsSettings(CertificateSettings):
    """Of each setting that begins with `ssl.`, one listener may have another value: write `listener.name.kafka.`,
    `listener.name.grpc.`, `listener.name.http.` or `listener.name.replication.` (inter.broker.listeners) before it,
    such as `listener.name.kafka.ssl.client.auth=required`."""

    allow_insecure_listeners: bool = setting(
        False,
        "Whether a listener may be PLAINTEXT or SASL_PLAINTEXT on an address that other machines reach, and ZooKeeper "
        "one that requires no credentials: the network can then read all traffic, and pretend to be any client.",
    )
    listener_name: dict[str, str] = setting(
        {}, "Settings of one listener, by what is written behind the prefix.", repr=False
    )

    def certificates_of(self, door: str) -> CertificateSettings:
        """What holds for one door of `LISTENER_NAMES`, its own settings before those of all. Raises ValidationError."""
        given: dict[str, Any] = {name: getattr(self, name) for name in CertificateSettings.model_fields}
        begins = f"{door}."
        aliases = {field.alias: name for name, field in CertificateSettings.model_fields.items()}
        for key, text in self.listener_name.items():
            if key.startswith(begins):
                given[aliases[key.removeprefix(begins)]] = text
        return CertificateSettings.model_validate(given)

    def told_of_listeners(self) -> dict[str, str]:
        """What is said of one listener, as it may be shown: name and value, secrets by asterisks."""
        hidden = {field.alias for field in CertificateSettings.model_fields.values() if field.annotation is SecretStr}
        return {
            f"{LISTENER_NAME}{key}": str(SecretStr(text)) if key.partition(".")[2] in hidden else text
            for key, text in self.listener_name.items()
        }


def is_listener_setting(key: str) -> bool:
    """
    >>> is_listener_setting("listener.name.kafka.ssl.client.auth"), is_listener_setting("listener.name.kafka.node.id")
    (True, False)
    """
    return key.startswith(LISTENER_NAME) and key in listener_settings()


def listener_settings() -> list[str]:
    """The names of all settings that hold for one listener."""
    own = [field.alias for field in CertificateSettings.model_fields.values()]
    return [f"{LISTENER_NAME}{door}.{setting}" for door in LISTENER_NAMES for setting in own]
