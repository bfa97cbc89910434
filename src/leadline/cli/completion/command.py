"""leadline completion: the completion script of a shell."""

import argparse

from leadline.cli import COMMANDS, whole_parser
from leadline.cli.completion.command_tree import command_nodes
from leadline.cli.completion.shells import SCRIPTS
from leadline.cli.options import add_command

DESCRIPTION = """\
Print a script with which a shell completes the commands of leadline and their options. The script holds them as they
are in this version: print it again after an upgrade."""
EXAMPLES = """
  leadline completion bash > ~/.local/share/bash-completion/completions/leadline
  leadline completion zsh > ~/.zfunc/_leadline                # a folder of $fpath, before compinit
  leadline completion fish > ~/.config/fish/completions/leadline.fish
  source <(leadline completion bash)                          # for this shell alone
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "completion",
        run,
        help=COMMANDS["completion"].help,
        usage="completion SHELL",
        description=DESCRIPTION,
        examples=EXAMPLES,
        connects=False,
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell: bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell](list(command_nodes(whole_parser()))), end="")
    return 0
