"""What a shell offers after some words, with the script of `leadline completion`."""

import shlex
import subprocess

TIMEOUT_S = 120

BASH = """
{script}
COMP_WORDS=({words}) COMP_CWORD={last}
_leadline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# The functions of zsh that show candidates need a terminal. These print them instead.
ZSH = """
compdef() {{ : }}
_describe() {{ print -l -- "${{(@)candidates%%:*}}" }}
_files() {{ print files }}
compadd() {{ shift; print -l -- "$@" }}
{script}
words=({words}) CURRENT={next}
_leadline
"""
FISH = """
{script}
complete -C {line}
"""


def offered(shell: str, script: str, *words: str) -> list[str]:
    """The candidates for the last word, which may be empty."""
    line = ["leadline", *words]
    if shell == "fish":
        text = FISH.format(script=script, line=shlex.quote(" ".join(line)))
    else:
        form = BASH if shell == "bash" else ZSH
        quoted = " ".join(shlex.quote(word) for word in line)
        text = form.format(script=script, words=quoted, last=len(words), next=len(line))
    options = {"bash": ["--norc", "-s"], "zsh": ["-f", "-s"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *options], input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert not done.stderr, done.stderr
    prefix = words[-1]
    return [word for line in done.stdout.splitlines() if (word := line.partition("\t")[0]) and word.startswith(prefix)]
