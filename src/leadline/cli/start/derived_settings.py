"""The settings of several brokers of one host, derived from one file.

What the n-th broker, counted from 0, has instead of the file's own values:

    broker.id             that of the file plus n; node.id likewise, if it is set
    listeners             each port plus n steps; port 0, any free port, stays
    advertised.listeners  likewise, if it is set
    log.dirs              the folder broker_<id> in each directory of the file
    broker.rack           the host, unless the file sets it

The step is 1 if no two listeners of the file are near each other. With ports 9092 and 9093 the second broker would get
9093, too: then the step is the smallest one with which MAX_BROKERS brokers share no port. It does not depend on the
number of brokers, so that more of them change no port of the others.

A directory of the file may be a whole disk, so the folders are inside it, not beside it. Their name is not that of a
partition (topic-0): a broker that is started on the directory itself does not take them for its logs.

Pure: text in, values out.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from leadline.config.broker import BrokerSettings, broker_settings
from leadline.config.listeners import Listener
from leadline.config.values import InvalidSetting
from leadline.model import BrokerId

MAX_BROKERS = 64  # of one host
MAX_PORT = 65_535


class DerivedBroker(NamedTuple):
    id: BrokerId
    own: Mapping[str, str]  # the settings that differ from those of the file
    settings: BrokerSettings


def derived_brokers(properties: Mapping[str, str], count: int, host: str) -> list[DerivedBroker]:
    """InvalidSetting if the settings of the file or of a broker are invalid, or cannot be those of several brokers."""
    base = broker_settings(properties)
    _check(base, count)
    bound, advertised = base.listeners.bound, base.listeners.advertised
    step = port_step([listener.port for listener in listeners] for listeners in (bound, advertised))
    brokers = []
    for n in range(count):
        id = base.broker.broker_id + n
        own = {
            "broker.id": str(id),
            "listeners": _shifted("listeners", bound, n * step),
            "log.dirs": ",".join(posixpath.join(path, folder_of(id)) for path in base.storage.log_dirs),
            "broker.rack": base.broker.broker_rack or host,
        }
        if "node.id" in properties:
            own["node.id"] = str(id)
        if "advertised.listeners" in properties:
            own["advertised.listeners"] = _shifted("advertised.listeners", advertised, n * step)
        brokers.append(DerivedBroker(id, own, broker_settings({**properties, **own})))
    return brokers


def folder_of(id: BrokerId) -> str:
    """The folder of a broker in each log directory of the file."""
    return f"broker_{id}"


def port_step(ports_of_listeners: Iterable[Sequence[int]]) -> int:
    """The distance between the ports of one broker and the next."""
    distances = {
        abs(port - other) for ports in ports_of_listeners for port, other in combinations(filter(None, ports), 2)
    } - {0}
    step = 1
    while any(distance % step == 0 and distance // step < MAX_BROKERS for distance in distances):
        step += 1
    return step


def _shifted(setting: str, listeners: Iterable[Listener], by: int) -> str:
    shifted = [replace(listener, port=listener.port + by) if listener.port else listener for listener in listeners]
    text = ",".join(map(str, shifted))
    if any(listener.port > MAX_PORT for listener in shifted):
        raise InvalidSetting(f"{setting}={text}: a port of the last broker would be above {MAX_PORT}")
    return text


def _check(base: BrokerSettings, count: int) -> None:
    if count > MAX_BROKERS:
        raise InvalidSetting(f"--brokers {count}: at most {MAX_BROKERS} brokers of one host")
    if base.broker.broker_id < 0:
        raise InvalidSetting("broker.id is not set: --brokers counts from it. Set it in the file, or --set broker.id=0")
    if not base.broker.zookeeper_connect:
        raise InvalidSetting(
            "zookeeper.connect is not set: several brokers are a cluster, which needs a ZooKeeper. Set it in the file, "
            f"or --set zookeeper.connect=HOST:2181. `leadline cluster up --brokers {count}` starts a ZooKeeper, too"
        )
