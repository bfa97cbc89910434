"""The console that `leadline start --console` starts."""

import asyncio
from pathlib import Path

import pytest

from leadline.cli.start.console_process import ConsoleOptions, ConsoleProcess, check_console, open_listener
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.broker import broker_settings
from leadline.config.listeners import Listeners
from leadline.config.values import InvalidSetting

PATIENCE_S = 120


def listeners(text: str, **settings: str) -> Listeners:
    others = {name.replace("_", "."): value for name, value in settings.items()}
    return broker_settings({"listeners": text, "log.dirs": "/nowhere", **others}).listeners


OPEN = listeners("PLAINTEXT://localhost:9092")


def test_the_options_of_the_console_are_passed_on() -> None:
    options = ConsoleOptions("127.0.0.1:8080", True, Path("client.properties"))
    assert options.arguments("localhost:9092") == [
        *("console", "--bootstrap-server", "localhost:9092", "--listen", "127.0.0.1:8080"),
        *("--allow-changes", "--command-config", "client.properties"),
    ]


def test_it_needs_client_properties_where_all_listeners_are_protected() -> None:
    protected = listeners(
        "SASL_PLAINTEXT://localhost:9092",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        inter_broker_listener_name="SASL_PLAINTEXT",
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256",
    )
    assert (open_listener(OPEN), open_listener(protected)) == ("PLAINTEXT", None)
    check_console(ConsoleOptions("127.0.0.1:0", False, None), OPEN)
    check_console(ConsoleOptions("127.0.0.1:0", False, Path("client.properties")), protected)
    with pytest.raises(InvalidSetting, match="--console-config"):
        check_console(ConsoleOptions("127.0.0.1:0", False, None), protected)


def test_it_stops_when_it_is_told_to_and_when_its_parent_has_ended() -> None:
    async def story() -> None:
        advertised = {"PLAINTEXT": Endpoint("localhost", 1)}
        stopped = ConsoleProcess(ConsoleOptions("127.0.0.1:0", False, None))
        await stopped.start(OPEN, advertised)
        orphan = ConsoleProcess(ConsoleOptions("127.0.0.1:0", False, None))
        await orphan.start(OPEN, advertised)
        assert stopped._process is not None
        assert orphan._process is not None
        assert orphan._pipe is not None
        await stopped.stop()
        assert stopped._process.returncode is not None
        orphan._pipe.close()
        orphan._pipe = None
        await asyncio.wait_for(orphan._process.wait(), PATIENCE_S)
        await orphan.stop()

    asyncio.run(story())
