"""`muster completion`: what a shell has to read so that TAB completes commands and options."""

import click
from click.shell_completion import get_completion_class

WHERE = {
    "bash": 'eval "$(muster completion bash)"          in ~/.bashrc',
    "zsh": 'eval "$(muster completion zsh)"           in ~/.zshrc',
    "fish": "muster completion fish | source           in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(sorted(WHERE)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL; a line in the shell's own start-up file takes it in."""
    from muster.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None, "every shell that can be named has one"
    # Asking bash for its version, which `source` does before it prints, is of no use to a script that is only printed.
    script = made(cli, {}, "muster", "_MUSTER_COMPLETE")
    click.echo(script.source_template % script.source_vars())
