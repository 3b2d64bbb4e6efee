"""`muster tokens`: what programs show by gRPC and HTTP instead of a password."""

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.groups.held import Duration
from muster.coordinator.observability.views.holds import format_minute

TOKEN_COLUMNS = [
    Column("TOKEN-ID", "token_id", style="cyan"),
    Column("NAME", "name"),
    Column("PRINCIPAL", "principal"),
    Column("CREATED", "created"),
    Column("EXPIRES", "expires"),
]


@click.group()
def tokens() -> None:
    """Tokens by which programs, and people with a browser, show who they are to a node with authorizer=acl."""


@tokens.command()
@client_options
@output_option
@click.option("--name", required=True, help="What it is for.")
@click.option(
    "--principal", default="", metavar="User:NAME", help="Whom it speaks for; without it, User: and the name."
)
@click.option("--ttl", type=Duration(), metavar="TIME", help="It ends after so long: 12h, 90d; without it never.")
def create(bootstrap: str, overrides: dict[str, str], style: str, name: str, principal: str, ttl: int | None) -> None:
    """Make a token, and print it: it is shown once, and kept as a hash.

    Put it into the file of --command-config, as token, or into the header
    'authorization: Bearer TOKEN'.
    """
    with connect_admin(bootstrap, overrides) as admin:
        text, made = admin.create_token(name, principal, ttl or 0)
    if style in ("json", "yaml"):
        print_document({"token": text, "token_id": made.token_id, "principal": made.principal}, style)
        return
    notice(f"{made.principal} by token {made.token_id}; it is not shown again:")
    click.echo(text)


@tokens.command("list")
@client_options
@output_option
def list_tokens(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List tokens: whose, what for, until when; not what they are."""
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.tokens()
    rows = [
        {
            "token_id": each.token_id,
            "name": each.name,
            "principal": each.principal,
            "created": format_minute(each.created_ms),
            "expires": format_minute(each.expires_ms) if each.expires_ms is not None else None,
        }
        for each in found
    ]
    print_rows(rows, TOKEN_COLUMNS, style)


@tokens.command()
@client_options
@click.argument("ids", nargs=-1, required=True, metavar="TOKEN-ID...")
def revoke(bootstrap: str, overrides: dict[str, str], ids: tuple[str, ...]) -> None:
    """Take tokens away; calls and streams that they opened end within a second."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.revoke_tokens(ids)
    notice(f"revoked {', '.join(ids)}")
