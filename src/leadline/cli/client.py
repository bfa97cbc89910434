"""What the commands that talk to a cluster share: how to reach it, how to say what went wrong, how to write values.

The client is librdkafka, through confluent-kafka. It is imported when a command first needs it, so that
`leadline --help` and `leadline start` do not wait for it.
"""

import argparse
import base64
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from leadline.cli.offset_plan import topic_in
from leadline.cli.servers import (
    ANSWER_S,
    KAFKA,
    Diagnoses,
    ServerAddress,
    addresses,
    diagnose_broker,
    diagnose_tls_broker,
)
from leadline.cli.terminal import table
from leadline.config.properties import parse_properties
from leadline.config.settings import nearest
from leadline.model import BrokerId

if TYPE_CHECKING:
    import logging

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

T = TypeVar("T")
Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
Run = Callable[[argparse.Namespace], int]
Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

DEFAULT_SERVER = "localhost:9092"
TIMEOUT_S = 10.0
LEAST_S = 0.001
TELL_S = 0.5  # of silence, until brokers are looked at
BROKER_ANSWER_S = 2.0  # a broker that takes longer counts as silent, unless --timeout is short
WANTS_LOGIN = "it speaks Kafka's protocol, and may want a login (security.protocol)"
PATIENCE_S = 0.25  # with a cluster that nobody answers for: how long one attempt lasts


class Failure(Exception):
    """What a person is told, in one line, before the command ends with 1."""


def command(run: Run) -> Run:
    """Errors become one line on stderr and exit code 1; a reader that went away ends the command quietly."""

    @functools.wraps(run)
    def guarded(options: argparse.Namespace) -> int:
        try:
            code = run(options)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
            return 0
        except Failure as error:
            complain(str(error))
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except _client_errors() as error:  # imported only now, when something went wrong
            complain(text_of(error.args[0]))
        return 1

    return guarded


def complain(text: str) -> None:
    paint = Paint(sys.stderr)
    over = "\r\033[K" if paint.on else ""  # a line of progress may stand there
    print(f"{over}{paint.red('leadline:')} {text}", file=sys.stderr)


def _client_errors() -> "tuple[type[Exception], ...]":
    from confluent_kafka import KafkaException

    return (KafkaException,)


def text_of(error: "KafkaError | str") -> str:
    """An error of the client or the broker, with the name by which it can be looked up."""
    if isinstance(error, str):
        return error
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({error.name()})"


_COMMANDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Paint:
    """Colours, on a terminal only and never against NO_COLOR."""

    def __init__(self, stream: TextIO) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._is_terminal = stream.isatty()
        self.on = self._is_terminal and not plain

    def _with(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on and text else text

    def harmless(self, text: str) -> str:
        """What came from elsewhere: on a terminal, without the characters that command it."""
        return _COMMANDING.sub(lambda match: f"\\x{ord(match[0]):02x}", text) if self._is_terminal else text

    def bold(self, text: str) -> str:
        return self._with("1", text)

    def dim(self, text: str) -> str:
        return self._with("2", text)

    def red(self, text: str) -> str:
        return self._with("31", text)

    def cyan(self, text: str) -> str:
        return self._with("36", text)


def show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, on stdout."""
    paint = Paint(sys.stdout)
    print(*table(heads, [[paint.harmless(cell) for cell in row] for row in rows], paint.bold), sep="\n")


# Options


def connection() -> argparse.ArgumentParser:
    """The options of every command that talks to a cluster: a parent of its parser."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"one broker or more, separated by commas (default {DEFAULT_SERVER})",
    )
    group.add_argument("--command-config", metavar="FILE", type=Path, help="client properties: security, timeouts")
    group.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="one client property")
    group.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help="for all answers (default 10)"
    )
    return parser


def add_command(
    commands: "Commands[argparse.ArgumentParser]",
    name: str,
    run: Run,
    *,
    help: str,
    usage: str,
    examples: str,
    description: str = "",
    connects: bool = True,
) -> argparse.ArgumentParser:
    """A command whose help teaches: what it does, how it is called, and calls that work."""
    parser = commands.add_parser(
        name,
        help=help,
        prog=f"leadline {usage.partition(name)[0]}{name}",
        usage=f"leadline {usage}",
        description=description or f"{help[0].upper()}{help[1:]}.",
        epilog=f"examples:\n{examples.strip(chr(10))}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[connection()] if connects else [],
        allow_abbrev=False,
    )
    parser._negative_number_matcher = re.compile(r"-\d")  # so that -1h is a value, as -10 is
    parser.set_defaults(run=command(run))
    return parser


def key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, not {text!r}")
    return key.strip(), value


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a number from {least} on, not {text!r}")
        return int(text)

    return number


def topic_argument(text: str) -> tuple[str, list[int] | None]:
    """A topic, and of its partitions those that are named: orders:0,2-5."""
    try:
        return topic_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def escaped(text: str) -> bytes:
    r"""A separator as one types it: \t, \n, \0 and \x1f have their usual meaning."""

    def unescape(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if match[1].startswith("x") else _ESCAPES[match[1]]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[tnr0\\])", unescape, text).encode()


_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PART = r"(\d+)\s*([a-z]+)\s*"
_ISO_DURATION = re.compile(r"P(?:\d+[DW])*(?:T(?:\d+[HMS])+)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """A length of time as one types it: 90s, 2h, "1 hour 30 minutes", or ISO 8601 as Kafka's tools take it (PT2H)."""
    plain = re.sub("[pt]", "", text.lower()) if _ISO_DURATION.fullmatch(text) else text.lower()
    parts = [(int(count), _unit(word)) for count, word in re.findall(_PART, plain)]
    if not re.fullmatch(f"(?:{_PART})+", plain) or not all(unit in _UNIT_MS for _, unit in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time: expected 90s, 15m, 2h, 7d or PT2H30M")
    return sum(count * _UNIT_MS[unit] for count, unit in parts)


def _unit(word: str) -> str:
    singular = word.removesuffix("s") if len(word) > 2 else word
    return _WORDS.get(singular, word)


def moment_ms(text: str) -> int:
    """A time as one types it, in ms since 1970: those ms, ISO 8601, `now`, or so long ago (-90m, "2 hours ago")."""
    if text.isdigit():
        return int(text)
    now_ms = time.time_ns() // 1_000_000
    if text == "now":
        return now_ms
    try:
        if text.startswith("-"):
            return now_ms - duration_ms(text[1:])
        if text.endswith(" ago"):
            return now_ms - duration_ms(text.removesuffix(" ago"))
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: expected 2024-05-01T12:00, ms since 1970, now, -90m, or '2 hours ago'"
        ) from None


# Properties


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties of Kafka's own client files, in librdkafka's words. What has none there is refused by name."""
    found = dict(given)
    if (jaas := found.pop("sasl.jaas.config", None)) is not None:
        found |= _credentials(jaas)
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    _rename_store(found, "truststore", {"location": ("ssl.ca.location",), "certificates": ("ssl.ca.pem",)})
    _rename_store(
        found,
        "keystore",
        {
            "location": ("ssl.certificate.location", "ssl.key.location"),
            "certificate.chain": ("ssl.certificate.pem",),
            "key": ("ssl.key.pem",),
        },
    )
    return found


def _credentials(jaas: str) -> dict[str, str]:
    found = dict(re.findall(r'(username|password)\s*=\s*"([^"]*)"', jaas))
    if found.keys() != {"username", "password"}:
        raise Failure("sasl.jaas.config: only a username and a password can be taken from it (PLAIN, SCRAM)")
    return {f"sasl.{key}": value for key, value in found.items()}


def _rename_store(found: dict[str, str], store: str, names: Mapping[str, tuple[str, ...]]) -> None:
    kind = found.pop(f"ssl.{store}.type", "PEM" if f"ssl.{store}.location" not in found else "JKS").upper()
    if kind == "PKCS12" and store == "keystore":
        return  # the same names there
    for name, others in names.items():
        value = found.pop(f"ssl.{store}.{name}", None)
        if value is not None and kind != "PEM":
            raise Failure(
                f"ssl.{store}.location: {value} is a {kind} store; this client reads PEM: ssl.{store}.type=PEM"
            )
        found |= dict.fromkeys(others, value) if value is not None else {}
    found.pop(f"ssl.{store}.password", None)


# The cluster


class ClusterConnection:
    """Clients of one cluster, as the options say; silent, but they remember what went wrong on the way."""

    def __init__(self, options: argparse.Namespace) -> None:
        given: dict[str, str] = {}
        if options.command_config is not None:
            given = parse_properties(options.command_config.read_text())
        given |= dict(key_value(pair) for pair in _pairs(options.property))
        self.properties = client_properties(given)
        if options.bootstrap_server is not None:
            self.properties["bootstrap.servers"] = options.bootstrap_server
        self.properties.setdefault("bootstrap.servers", DEFAULT_SERVER)
        self.properties.setdefault("client.id", "leadline")
        self.properties.setdefault("log_level", "0")
        self.servers = self.properties["bootstrap.servers"]
        self._addresses = self._checked("--bootstrap-server" if options.bootstrap_server else "bootstrap.servers")
        self.timeout_s: float = options.timeout
        self._deadline: float = time.monotonic() + self.timeout_s
        self.brokers: dict[BrokerId, ServerAddress] = {}  # as the cluster last told
        self.controller: BrokerId = -1
        self.answered: ServerAddress | None = None  # the broker that told it
        self._silent: dict[BrokerId, str] | None = None
        self._trouble: list[KafkaError] = []  # what the client said of its connections, last of all the newest

    def _checked(self, name: str) -> list[ServerAddress]:
        try:
            return addresses(self.servers)
        except ValueError as error:
            raise Failure(f"{name} {error}") from None

    @property
    def left_s(self) -> float:
        """What is left of --timeout, which holds for a command as a whole. Never nothing: 0 means for ever to some."""
        return max(self._deadline - time.monotonic(), LEAST_S)

    def start_again(self) -> None:
        """A command that goes on for as long as it likes gives each of its steps the whole of --timeout."""
        self._deadline = time.monotonic() + self.timeout_s

    def _heard(self, error: "KafkaError") -> None:
        self._trouble.append(error)

    def admin(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        return self._made(lambda: AdminClient({**self.properties}, error_cb=self._heard))

    def producer(self, required: Mapping[str, str], logger: "logging.Logger | None" = None) -> "Producer":
        from confluent_kafka import Producer

        said = {} if logger is None else {"logger": logger}
        return self._made(lambda: Producer({**self.properties, **required}, error_cb=self._heard, **said))

    def consumer(self, required: Mapping[str, str]) -> "Consumer":
        from confluent_kafka import Consumer

        return self._made(lambda: Consumer({**self.properties, **required}, error_cb=self._heard))

    def _made(self, make: Callable[[], T]) -> T:
        """The client, or its complaint about a property."""
        try:
            return make()
        except _client_errors() as error:
            raise Failure(f"client properties: {error.args[0].str()}") from None

    def metadata(self, client: "AdminClient | Producer | Consumer", topic: str | None = None) -> "ClusterMetadata":
        """What the cluster says of itself; a Failure once it is clear that nobody answers."""
        from confluent_kafka import KafkaException

        diagnoses: Diagnoses | None = None
        while True:
            attempt_s = min(self.left_s, PATIENCE_S)
            try:
                found: ClusterMetadata = (
                    client.list_topics(timeout=attempt_s)
                    if topic is None
                    else client.list_topics(topic, timeout=attempt_s)
                )
                return self._remembered(found)
            except KafkaException as error:
                client.poll(0)  # hands over what the client has to say
                diagnoses = diagnoses or Diagnoses(self._addresses, min(ANSWER_S, self.timeout_s / 4))
                if self._is_hopeless() or diagnoses.are_final or self.left_s <= LEAST_S:
                    diagnoses.wait(min(self.left_s, ANSWER_S))
                    raise Failure(f"cannot reach {self.servers}: {self._why(error.args[0], diagnoses)}") from None

    def look_again(self, cluster: "ClusterMetadata") -> None:
        """Forget which brokers were silent."""
        self._remembered(cluster)
        self._silent = None

    def _remembered(self, cluster: "ClusterMetadata") -> "ClusterMetadata":
        self.brokers = {id: ServerAddress(str(node.host), node.port) for id, node in cluster.brokers.items()}
        self.controller = cluster.controller_id
        self.answered = self.brokers.get(cluster.orig_broker_id)
        return cluster

    @property
    def silent(self) -> dict[BrokerId, str]:
        """The brokers of the cluster that do not answer, and what is wrong with each. All are asked, at once."""
        if self._silent is None:
            self._silent = {} if len(self.brokers) < 2 else self._found_silent()
        return self._silent

    def _found_silent(self) -> dict[BrokerId, str]:
        is_tls = "SSL" in self.properties.get("security.protocol", "").upper()
        answer_s = min(BROKER_ANSWER_S, self.left_s / 3)
        diagnoses = Diagnoses(self.brokers.values(), answer_s, diagnose_tls_broker if is_tls else diagnose_broker)
        diagnoses.wait(answer_s * 2)
        found = {id: diagnoses.found.get(address) for id, address in self.brokers.items()}
        return {
            id: f"broker {id} at {self.brokers[id].host}:{self.brokers[id].port} does not answer"
            for id, diagnosis in sorted(found.items())
            if diagnosis is None or not diagnosis.is_there
        }

    def complain_of_silent(self, what: str) -> int:
        """A line for each broker that does not answer; 1, the exit code, if what was told is not all."""
        for text in self.silent.values():
            complain(f"{text}: {what}")
        return 1 if self.silent else 0

    def _is_hopeless(self) -> bool:
        from confluent_kafka import KafkaError

        final = {
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._AUTHENTICATION,
            KafkaError._RESOLVE,
            KafkaError._SSL,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.UNSUPPORTED_SASL_MECHANISM,
        }
        return any(error.code() in final for error in self._trouble)

    def _why(self, error: "KafkaError", diagnoses: Diagnoses) -> str:
        """What the servers are, if they are no brokers; else what the client said of its connections."""
        found = {} if KAFKA in diagnoses.found.values() else diagnoses.found
        texts = {server: each.text for server, each in found.items()}
        if len(texts) == len(self._addresses) == 1:
            return next(iter(texts.values()))
        if texts:
            return "; ".join(f"{server.host}:{server.port}: {text}" for server, text in texts.items())
        wants_login = diagnoses.found and "SASL" not in self.properties.get("security.protocol", "").upper()
        return f"{self._said(error)}; {WANTS_LOGIN}" if wants_login else self._said(error)

    def _said(self, error: "KafkaError") -> str:
        from confluent_kafka import KafkaError

        said = [trouble for trouble in self._trouble if trouble.code() != KafkaError._ALL_BROKERS_DOWN]
        text = said[-1].str() if said else error.str()
        text = re.sub(r"^\S+: (?=[A-Z])|^.*?/bootstrap: ", "", text)
        text = re.sub(r"^Connect to ipv\d#\S+ failed: ", "", text)
        return re.sub(r" \(after \d+ms in state \w+.*\)$", "", text).removeprefix("Local: ").rstrip(": ")

    def partitions_of(self, client: "Producer | Consumer", topic: str) -> "dict[int, PartitionMetadata]":
        """Asks for all topics: to ask for one by its name may create it."""
        known = self.metadata(client).topics
        if topic not in known:
            raise no_topic(topic, known)
        if (error := known[topic].error) is not None:
            raise Failure(f"topic {topic}: {text_of(error)}")
        return known[topic].partitions

    def wait(self, future: "Future[T]") -> T:
        """What the cluster answered; errors come as confluent-kafka raises them, a silence names the silent brokers."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result(TELL_S)
        except TimeoutError:
            silent = self.silent
        try:
            return future.result()
        except KafkaException as error:
            if not silent or error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            role = ", which is the controller" if self.controller in silent else ""
            raise Failure(f"{'; '.join(silent.values())}{role}") from None


def administer(options: argparse.Namespace) -> "tuple[ClusterConnection, AdminClient]":
    """A client for the cluster's own affairs, and the certainty that somebody answers it."""
    connection = ClusterConnection(options)
    admin = connection.admin()
    connection.metadata(admin)
    return connection, admin


def _pairs(given: Sequence[str]) -> Sequence[str]:
    for pair in given:
        if "=" not in pair:
            raise Failure(f"--property {pair}: expected KEY=VALUE")
    return given


def no_topic(name: str, known: Mapping[str, object] | Sequence[str]) -> Failure:
    return Failure(f"there is no topic {name}{nearest(name, known)}")


def agreed(question: str) -> bool:
    """What a person answers on a terminal; in a pipe nobody is asked, and the command does what it was told."""
    if not sys.stdin.isatty():
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# Values


def json_bytes(name: str, data: bytes | None) -> dict[str, Json]:
    """Bytes as a member of a JSON object: text where they are text; else base64, and the name says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}
