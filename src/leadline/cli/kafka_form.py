"""Calls in the form of Kafka's own tools, translated to the form that works here.

    leadline topics --describe --topic orders          leadline topics describe orders
    leadline kafka-console-consumer --topic orders     leadline consume orders

`kafka_tools.py` has the table. A tool is a text with a row for each flag:

    --topic = | {}                 the flag has a value, and what it is here: {} stands for the value
    --describe | do describe       the action, which is the command here
    --force | --yes                a flag without a value
    --exclude-internal |           nothing is needed here
    --zookeeper = | no ...         it does not work here, and what does

Pure: words in, words out.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leadline.config.settings import nearest

ACTION, REFUSAL = "do ", "no "
LIKENESS = 0.6


class KafkaFormRefused(Exception):
    """A call in the form of Kafka's tools that does not work here. The message names one that does."""


class KafkaFlag(NamedTuple):
    takes_value: bool
    action: str | None  # the command that it stands for
    words: Sequence[str]
    refusal: str


class KafkaCall(NamedTuple):
    """A call of one of Kafka's tools, flag by flag."""

    actions: Sequence[str]
    words: Sequence[str]  # of the flags, translated
    values: dict[str, list[str]]  # of all flags, as they were given
    arguments: Sequence[str]  # words that are not flags


Finish = Callable[[KafkaCall], Sequence[str]]  # the words of a call here


@dataclass(frozen=True, slots=True)
class KafkaTool:
    name: str  # kafka-topics
    command: str  # what it is here: topics
    flags: dict[str, KafkaFlag]
    finish: Finish

    def translated(self, words: Sequence[str]) -> list[str]:
        call = self._parsed(words)
        return [*self.command.split(), *self.finish(call)]

    def _parsed(self, words: Sequence[str]) -> KafkaCall:
        actions, translated, values, arguments = list[str](), list[str](), dict[str, list[str]](), list[str]()
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                arguments.append(word)
                continue
            name, separator, value = word.partition("=")
            flag = self.flags.get(name)
            if flag is None:
                hint = f"; {self._form()}"
                raise KafkaFormRefused(f"{self.name} has no {name}{nearest(name, self.flags, LIKENESS) or hint}")
            if flag.takes_value and not separator:
                if not rest or rest[0].startswith("--"):
                    raise KafkaFormRefused(f"{self.name} {name} needs a value; {self._form()}")
                value = rest.pop(0)
            if flag.refusal:
                raise KafkaFormRefused(f"{name}: {flag.refusal.replace('{}', shlex.quote(value))}")
            if flag.action is not None:
                actions.append(flag.action)
            values.setdefault(name, []).append(value)
            translated += [part.replace("{}", value) for part in flag.words]
        return KafkaCall(actions, translated, values, arguments)

    def _form(self) -> str:
        return f"here it is `leadline {self.command}`: see its --help" if self.command else "see leadline --help"


def flags_in(table: str) -> dict[str, KafkaFlag]:
    flags: dict[str, KafkaFlag] = {}
    for line in table.strip().splitlines():
        left, _, right = (part.strip() for part in line.partition("|"))
        takes_value = left.endswith("=")
        for name in left.removesuffix("=").split():
            action = right.removeprefix(ACTION).strip() if right.startswith(ACTION) else None
            refusal = right.removeprefix(REFUSAL) if right.startswith(REFUSAL) else ""
            words = () if action is not None or refusal else tuple(right.split())
            flags[name] = KafkaFlag(takes_value, action, words, refusal)
    return flags


def only_action(call: KafkaCall, tool: str, actions: Iterable[str]) -> str:
    if len(call.actions) != 1:
        problem = "only one of" if call.actions else "one of"
        raise KafkaFormRefused(f"{tool} needs {problem} {', '.join(actions)}")
    return call.actions[0]


def by_action(tool: str, flags: dict[str, KafkaFlag]) -> Finish:
    """The action, the words of the flags, the arguments."""
    actions = [name for name, flag in flags.items() if flag.action is not None]
    return lambda call: [only_action(call, tool, actions), *call.words, *call.arguments]


def without_action(call: KafkaCall) -> list[str]:
    return [*call.words, *call.arguments]
