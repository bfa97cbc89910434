"""The man page leadline(1), from the help of all commands: `make man` writes it."""

import argparse

from leadline import __version__
from leadline.cli.completion.command_tree import CommandNode


def man_page(nodes: list[CommandNode]) -> str:
    first, *commands = nodes
    lines = [
        f'.TH LEADLINE 1 "" "Leadline {__version__}" "User Commands"',
        *(".SH NAME", r"leadline \- a log broker that speaks Kafka's protocol and writes Kafka's files"),
        *(".SH SYNOPSIS", ".B leadline", ".I COMMAND", ".RI [ options ]"),
        *(".SH DESCRIPTION", *_paragraphs(first.parser.description or "")),
        *(".SH OPTIONS", *_arguments(first.parser)),
        ".SH COMMANDS",
    ]
    for node in commands:
        usage = " ".join(node.parser.format_usage().removeprefix("usage: ").split())
        lines += [f".SS {_text(f'leadline {node.path}')}", _text(usage), ".PP"]
        lines += _paragraphs(node.parser.description or node.help)
        lines += _arguments(node.parser)
        if node.parser.epilog:
            lines += [".PP", ".nf", *map(_text, node.parser.epilog.strip("\n").splitlines()), ".fi"]
    lines += [".SH FILES", ".TP", ".I leadline\\-data", "The default log directory of a broker."]
    return "\n".join(lines) + "\n"


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    lines = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        formatter = parser._get_formatter()
        lines += [".TP", f".B {_text(formatter._format_action_invocation(action))}"]
        lines.append(_text(" ".join(formatter._expand_help(action).split())) if action.help else "\\&")
    return lines


def _paragraphs(text: str) -> list[str]:
    parts = [part for part in text.strip().split("\n\n") if part]
    lines: list[str] = []
    for part in parts:
        is_table = any(line.startswith("  ") for line in part.splitlines())
        body = [_text(line.rstrip()) for line in part.splitlines()]
        lines += [".PP", ".nf", *body, ".fi"] if is_table else [".PP", *(line.strip() for line in body)]
    return lines[1:] if lines[:1] == [".PP"] else lines


def _text(line: str) -> str:
    """A line as roff prints it: no macro at its start, and hyphens that can be copied."""
    escaped = line.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga").replace("~", r"\(ti")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    from leadline.cli import whole_parser
    from leadline.cli.completion.command_tree import command_nodes

    print(man_page(list(command_nodes(whole_parser()))), end="")
