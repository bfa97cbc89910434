"""The last rebalances of a group: the members that joined or left, and the duration.

Leadline's brokers return them as a read-only setting of the group: a JSON list, the newest last. Other brokers have no
such setting.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadline.cli.connection import ClusterConnection
from leadline.cli.errors import client_error_text
from leadline.cli.formatting import age_text, moment_text
from leadline.cli.groups.group import GroupDescription

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SETTING = "leadline.rebalances"
NO_HISTORY = "This cluster keeps no history of rebalances."
SHOWN = 10
HEADS = ("WHEN", "TOOK", "GENERATION", "MEMBERS", "WHY")

Rebalance = Mapping[str, Any]  # one object of the JSON list


def rebalances(connection: ClusterConnection, admin: "AdminClient", group: GroupDescription) -> list[Rebalance] | str:
    """The rebalances that the coordinator remembers, or why there are none."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin._config import ConfigResource

    resources = [ConfigResource(ConfigResource.Type.GROUP, group.group_id)]
    (future,) = admin.describe_configs(
        resources, request_timeout=connection.remaining_s, broker=group.coordinator
    ).values()
    try:
        entries = connection.wait(future)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.INVALID_REQUEST:  # Kafka's answer for a group
            return NO_HISTORY
        return f"No history of rebalances: {client_error_text(error.args[0])}."
    return json.loads(entries[SETTING].value) if SETTING in entries else NO_HISTORY


def rows(history: Sequence[Rebalance]) -> list[list[str]]:
    """The newest first."""
    return [
        [
            moment_text(rebalance["began_ms"]),
            took_text(rebalance),
            _change(rebalance["generation_before"], rebalance["generation_after"]),
            _change(rebalance["members_before"], rebalance["members_after"]),
            why(rebalance),
        ]
        for rebalance in list(reversed(history))[:SHOWN]
    ]


def took_text(rebalance: Rebalance) -> str:
    if rebalance["took_ms"] is None:
        return "under way"
    took = age_text(rebalance["took_ms"])
    return f"{took}, interrupted" if rebalance["outcome"] == "interrupted" else took


def _change(before: int, after: int | None) -> str:
    return f"{before}" if after is None else f"{before} to {after}"


def why(rebalance: Rebalance) -> str:
    causes = [_cause(cause) for cause in rebalance["causes"]]
    if rebalance["more_causes"]:
        causes.append(f"and {rebalance['more_causes']} more")
    return "; ".join(causes) or "unknown"


def _cause(cause: Rebalance) -> str:
    member = cause["instance_id"] or cause["client_id"] or cause["member_id"]
    host = f" on {cause['client_host'].removeprefix('/')}" if cause["client_host"] else ""
    reason = f" ({cause['reason']})" if cause["reason"] else ""
    return f"{member}{host} {cause['what']}{reason}".strip()
