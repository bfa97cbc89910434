"""The completion scripts of bash, zsh and fish.

Each script holds the commands and options as they are now. It looks which command the words before the cursor name, and
offers what may follow. A value has its choices, or else the names of files. No script starts Python.

Pure: commands in, text out.
"""

import shlex

from leadline.cli.completion.command_tree import CommandNode, next_words

BASH = """\
# leadline completion bash: source it, or put it into ~/.local/share/bash-completion/completions/leadline
_leadline() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{at:+$at }}${{COMP_WORDS[i]}}" in
      {paths}) at="${{at:+$at }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$at $prev" in
{values}
  esac
  case "$at" in
{words}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _leadline leadline
"""

ZSH = """\
#compdef leadline
# leadline completion zsh: put it into a file _leadline in a folder of $fpath, or source it after compinit
_leadline() {{
  local prev=${{words[CURRENT-1]}} at="" i
  local -a candidates
  for ((i = 2; i < CURRENT; i++)); do
    case "${{at:+$at }}${{words[i]}}" in
      {paths}) at="${{at:+$at }}${{words[i]}}" ;;
    esac
  done
  case "$at $prev" in
{values}
  esac
  case "$at" in
{words}
  esac
  _describe leadline candidates || _files
}}
if [[ $funcstack[1] == _leadline ]]; then _leadline "$@"; else compdef _leadline leadline; fi
"""

FISH = """\
# leadline completion fish: put it into ~/.config/fish/completions/leadline.fish
function __leadline_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l at ''
    for word in $words
        set -l next (string trim "$at $word")
        contains -- $next {paths}; and set at $next
    end
    test "$at" = "$argv[1]"
end
complete -c leadline -e
{lines}
"""


def bash_script(nodes: list[CommandNode]) -> str:
    values = _value_lines(nodes, 'COMPREPLY=($(compgen -W {choices} -- "$cur")); return', "COMPREPLY=(); return")
    words = [
        f"    {_quoted(node.path)}) words={shlex.quote(' '.join(word for word, _ in next_words(node, nodes)))} ;;"
        for node in nodes
    ]
    return BASH.format(paths=_paths(nodes, "|"), values="\n".join(values), words="\n".join(words))


def zsh_script(nodes: list[CommandNode]) -> str:
    values = _value_lines(nodes, "compadd -- ${{=:-{plain}}}; return", "_files; return")
    words = []
    for node in nodes:
        pairs = (shlex.quote(f"{word}:{help}".rstrip(":")) for word, help in next_words(node, nodes))
        words.append(f"    {_quoted(node.path)}) candidates=({' '.join(pairs)}) ;;")
    return ZSH.format(paths=_paths(nodes, "|"), values="\n".join(values), words="\n".join(words))


def fish_script(nodes: list[CommandNode]) -> str:
    lines = []
    for node in nodes:
        condition = f"complete -c leadline -n {_fish(f'__leadline_at {_fish(node.path)}')}"
        names = {name for option in node.options for name in option.names}
        if below := [(word, help) for word, help in next_words(node, nodes) if word not in names]:
            lines += [f"{condition} -f -a {_fish(word)} -d {_fish(help)}" for word, help in below]
        for option in node.options:
            flags = " ".join(_fish_name(name) for name in option.names)
            value = (
                f" -x -a {_fish(' '.join(option.choices))}" if option.choices else " -r" if option.takes_value else ""
            )
            lines.append(f"{condition} {flags}{value} -d {_fish(option.help)}")
    return FISH.format(paths=_paths(nodes, " "), lines="\n".join(lines))


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def _paths(nodes: list[CommandNode], separator: str) -> str:
    return separator.join(_quoted(node.path) for node in nodes if node.words)


def _value_lines(nodes: list[CommandNode], with_choices: str, without: str) -> list[str]:
    """What to do after an option that takes a value."""
    lines = []
    for node in nodes:
        for option in node.options:
            if option.takes_value:
                patterns = "|".join(_quoted(f"{node.path} {name}") for name in option.names)
                plain = " ".join(option.choices)
                action = with_choices.format(choices=shlex.quote(plain), plain=plain) if plain else without
                lines.append(f"    {patterns}) {action} ;;")
    return lines


def _quoted(text: str) -> str:
    return f"'{text}'"  # commands and options have no quotes


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
