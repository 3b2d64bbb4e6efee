"""Who may do what: whether anybody is asked, and who may do everything."""

from typing import Final, Literal

from pydantic import BaseModel, Field, field_validator

from muster.coordinator.config.values import PrincipalNames

USER: Final = "User"
"""The kind of principal that logins, certificates and tokens make."""


class AuthorizationSettings(BaseModel):
    authorizer: Literal["none", "acl"] = Field(
        default="none",
        alias="authorizer",
        description="Whether access control lists say who may do what (acl), or whoever reaches a port may do all "
        "there is (none).",
    )
    super_users: PrincipalNames = Field(
        default=PrincipalNames(""),
        alias="super.users",
        description="Who may do everything, by semicolons, such as User:admin;User:CN=ops.",
    )
    allow_everyone_if_no_acl_found: bool = Field(
        default=False,
        alias="allow.everyone.if.no.acl.found",
        description="Whether everybody may do everything with a resource that no access control list names.",
    )

    @field_validator("super_users")
    @classmethod
    def are_principals(cls, value: PrincipalNames) -> PrincipalNames:
        for name in principals_of(value):
            kind, colon, rest = name.partition(":")
            if not (kind and colon and rest):
                raise ValueError(f"{name!r} is no principal; expected KIND:NAME, such as User:alice")
            if kind != USER and kind.lower() == USER.lower():
                raise ValueError(f"{name!r} names nobody; expected {USER}:{rest}")
            if rest == "*":
                raise ValueError(f"{name!r} names nobody: everybody cannot be one of them")
            if f",{USER}:" in name:
                raise ValueError(f"{name!r} is one principal; expected semicolons between several")
        return value


def principals_of(names: str) -> tuple[str, ...]:
    """
    >>> principals_of("User:a; User:CN=b,O=c;")
    ('User:a', 'User:CN=b,O=c')
    """
    return tuple(name.strip() for name in names.split(";") if name.strip())
