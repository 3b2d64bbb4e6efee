"""ssl.principal.mapping.rules: what Kafka 4.1.1's SslPrincipalMapper makes of the same rules and subjects."""

import pytest

from muster.coordinator.config.tls import map_subject, parse_mapping_rules

SEVERAL = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (SEVERAL, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (SEVERAL, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (SEVERAL, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (SEVERAL, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (SEVERAL, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz", r"Tkac\, Adam"),
        ("RULE:CN=(.*)/a$1b/", "CN=x", "axb"),
        ("RULE:CN=(.*)/$1$2/", "CN=x", "x$2"),
        ("RULE:CN=(.*)/$12/", "CN=x", "x2"),
        ("RULE:CN=(.*)/$0!/", "CN=x", "CN=x!"),
        (r"RULE:CN=(.*)/\$1\//", "CN=x", "$1/"),
        ("RULE:CN=(?<who>.*)/${who}/", "CN=x", "x"),
        ("RULE:CN=(a)?(.*)/[$1$2]/", "CN=x", "[x]"),
        ("RULE:CN=(.*?)/$1;/", "CN=xy", ";xy"),
        ("RULE:(.*)/$1;/", "CN=x", "CN=x;;"),
        ("RULE:CN=(\\w+)/$1/, RULE:CN=(.*)/other/", "CN=é", "other"),
        ("RULE:CN=(.*)/$1/L", "CN=ÀB", "àb"),
        (",, RULE:nobody/x/ ,,DEFAULT,,", "CN=x", "CN=x"),
        ("RULE:CN=a, b/$0/", "CN=a, b", "CN=a, b"),
        ("RULE:CN=x/y/", "CN=z", None),
        ("RULE://", "CN=z", None),
    ],
)
def test_a_subject_gets_the_name_that_kafka_gives_it(rules: str, subject: str, name: str | None) -> None:
    assert map_subject(subject, parse_mapping_rules(rules)) == name


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("", "there is no rule"),
        (" , ", "there is no rule"),
        ("default", "'default' is not a rule; expected DEFAULT, or such as RULE:"),
        ("DEFAULT/L", "'/L' follows a rule; expected a comma, or the end"),
        ("DEFAULTS", "'S' follows a rule"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "'$1' lacks a slash; expected RULE:PATTERN/REPLACEMENT/"),
        ("rule:^CN=(.*?),OU=ServiceUsers.*$/$1/", "is not a rule"),
        ("RULE:^CN=(.*?)$/$1/L/U", "'/U' follows a rule"),
        ("RULE:^CN=(.*?)$/LU", "'LU' lacks a slash"),
        ("RULE:^CN=(.*$/$1/", "is not a regular expression"),
        ("RULE:^CN=.*$/$1/", "'$1' in '$1' refers to no group of '^CN=.*$'"),
        ("RULE:^CN=(.*)$/${who}/", "refers to no group"),
        ("RULE:^CN=(.*)$/$x/", "'$' in '$x' refers to no group"),
    ],
)
def test_what_is_no_rule_is_refused_at_the_start(rules: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_mapping_rules(rules)
    assert why in str(caught.value)
