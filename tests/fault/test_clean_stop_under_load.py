"""The broker is stopped with a signal, again and again, under producers that never let go.

what was acknowledged is there, at the offset that it was acknowledged with
each stop is clean: nothing is to be recovered, and nothing goes wrong on the way
"""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.fault.load import PARTITIONS, Load, check, running
from tests.support.broker import leadline
from tests.support.topics import create_topic

STOPS = 3
ALIVE_S = (0.3, 1.0)  # how long it lives at least and at most


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_a_clean_stop_keeps_what_was_acknowledged(tmp_path: Path, flush_messages: str) -> None:
    with leadline(tmp_path / "data", log_retention_ms=-1) as broker:
        create_topic(broker.bootstrap, "orders", PARTITIONS, flush_messages=flush_messages)
        loads = [
            Load(broker, "orders", "all", {"acks": "all"}),
            Load(broker, "orders", "one", {"acks": "1"}),
            Load(broker, "orders", "idempotent", {"enable.idempotence": True}),
        ]
        with running(*loads):
            for number in random.choices([signal.SIGTERM, signal.SIGHUP, signal.SIGINT], k=STOPS):
                time.sleep(random.uniform(*ALIVE_S))
                broker.process.send_signal(number)
                assert broker.process.wait(timeout=60) == 0
                broker.start()
        check(broker, *loads)
        output = broker.output()
        assert output.count("stopped; everything is on disk") == STOPS
        assert output.count("(stopped cleanly)") == STOPS
        assert "Traceback" not in output
