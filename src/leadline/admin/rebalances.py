"""The last rebalances of a group: the members that joined or left, and the duration.

Leadline's brokers return them as a read-only setting of the coordinator: a JSON list, the newest last. Other brokers
have no such setting, and leave it out.
"""
# mypy: disable-error-code="import-untyped"

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leadline.admin.errors import Failure
from leadline.admin.formatting import age_text, moment_text
from leadline.admin.group import GroupDescription
from leadline.admin.kafka_python.admin import KafkaPythonAdmin

SETTING = "leadline.rebalances."  # and the id of the group
NO_HISTORY = "This cluster keeps no history of rebalances."
SHOWN = 10
HEADS = ("WHEN", "TOOK", "GENERATION", "MEMBERS", "WHY")

Rebalance = Mapping[str, Any]  # one object of the JSON list


def rebalances(client: KafkaPythonAdmin, group: GroupDescription) -> list[Rebalance] | str:
    """The rebalances that the coordinator remembers, or why there are none."""
    from kafka.admin import ConfigResource, ConfigResourceType

    name, coordinator = f"{SETTING}{group.group_id}", str(group.coordinator)
    resources = [ConfigResource(ConfigResourceType.BROKER, coordinator, [name])]
    try:
        described = client.request(
            "no history of rebalances",
            lambda: client.client.describe_configs(resources, config_filter="all"),
            group.coordinator,
        )
    except Failure as error:
        text = str(error)
        return f"{text[0].upper()}{text[1:]}."
    entries = described["broker"][coordinator]
    return json.loads(entries[name]["value"]) if name in entries else NO_HISTORY


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
