"""A double of kafka-python's admin client: it answers from a table of calls, without a connection."""

from types import SimpleNamespace
from typing import Any, cast

from kafka import KafkaAdminClient  # type: ignore[import-untyped]

from leadline.admin.connection import ClusterConnection
from leadline.admin.kafka_python.admin import KafkaPythonAdmin


class AnsweringClient(KafkaAdminClient):  # type: ignore[misc]
    """`answers`: by the name of the method, a function of its arguments. `sent`: requests by hand, in order."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.sent: list[tuple[Any, int]] = []
        self._answers = answers
        self.config: dict[str, Any] = {}
        self._manager = SimpleNamespace(run=self._run, send=self._send, config={}, _conns={})

    def __getattribute__(self, name: str) -> Any:
        answers = object.__getattribute__(self, "__dict__").get("_answers", {})
        return answers[name] if name in answers else object.__getattribute__(self, name)

    def _run(self, call: Any, *arguments: Any) -> Any:
        if not arguments:
            return None  # the connection to the first broker
        return call(*arguments)

    def _send(self, request: Any, broker: int) -> Any:
        self.sent.append((request, broker))
        return self._answers["send"](request, broker)


def answering_admin(
    brokers: tuple[int, ...] = (1, 2), silent: dict[int, str] | None = None, remaining_s: float = 0.0, **answers: Any
) -> KafkaPythonAdmin:
    """An admin of these brokers. Broker 1 is the controller."""
    connection = SimpleNamespace(
        brokers=dict.fromkeys(brokers), silent=silent or {}, controller=1, remaining_s=remaining_s
    )
    return KafkaPythonAdmin(AnsweringClient(answers), cast(ClusterConnection, connection))
