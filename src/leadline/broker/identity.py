"""The identity of a broker: its id and its cluster's id, as meta.properties in each log directory stores them.

    neither a setting, nor the tree, nor another log directory contradicts what a directory remembers

A file that lacks an id is completed: from the settings, from the tree, or by a new id.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from leadline.config.broker import BrokerConfig
from leadline.config.values import InvalidSetting
from leadline.controller import tree_reader
from leadline.coordination import znodes
from leadline.coordination.database import FILE_NAME
from leadline.coordination.membership import agree_on_cluster_id, generate_broker_id
from leadline.coordination.tree import Tree
from leadline.errors import InconsistentIdentity
from leadline.log import names
from leadline.model import BrokerId, format_id, new_id
from leadline.runtime.ports import Chance

BROKER_ID, CLUSTER_ID, VERSION = "broker.id", "cluster.id", "version"
ZOOKEEPERS_VERSION = "0"  # of the file, where the metadata is in ZooKeeper


class Identity(NamedTuple):
    broker: BrokerId
    cluster_id: str


async def identify(
    tree: Tree, stored: Mapping[str, Mapping[str, str]], config: BrokerConfig, chance: Chance, *, is_alone: bool
) -> Identity:
    """`stored`: meta.properties of each log directory that has one. InconsistentIdentity, InvalidSetting."""
    for directory, properties in stored.items():
        if properties.get(VERSION, ZOOKEEPERS_VERSION) != ZOOKEEPERS_VERSION:
            raise InconsistentIdentity(
                f"{_file(directory)} has version {properties[VERSION]}: the directory was formatted for KRaft, "
                "not for a broker with ZooKeeper. Set log.dirs to another directory"
            )
    cluster_id = await _cluster_id(tree, stored, chance, is_alone=is_alone)
    broker = _stored_broker_id(stored, config.broker_id)
    if broker is None:
        broker = config.broker_id if config.broker_id >= 0 else await _new_broker_id(tree, stored, config, is_alone)
    if is_alone:
        await _check_assigned(tree, broker)
    return Identity(broker, cluster_id)


def properties_of(identity: Identity) -> dict[str, str]:
    return {BROKER_ID: str(identity.broker), VERSION: ZOOKEEPERS_VERSION, CLUSTER_ID: identity.cluster_id}


async def _cluster_id(tree: Tree, stored: Mapping[str, Mapping[str, str]], chance: Chance, *, is_alone: bool) -> str:
    stored_ids = {
        directory: properties[CLUSTER_ID] for directory, properties in stored.items() if CLUSTER_ID in properties
    }
    cluster_id = await agree_on_cluster_id(
        tree, next(iter(stored_ids.values()), None) or format_id(new_id(chance.new_uuid))
    )
    for directory, stored_id in stored_ids.items():
        if stored_id != cluster_id and is_alone:
            raise InconsistentIdentity(
                f"{_file(directory)} has cluster.id {stored_id}, but {FILE_NAME} is of cluster {cluster_id}. If these "
                f"logs belong here, set cluster.id={cluster_id} there; else set log.dirs to another directory"
            )
        if stored_id != cluster_id:
            raise InconsistentIdentity(
                f"{_file(directory)} has cluster.id {stored_id}, but the cluster at zookeeper.connect is {cluster_id}: "
                "this broker would join the wrong cluster. Check zookeeper.connect and log.dirs"
            )
    return cluster_id


def _stored_broker_id(stored: Mapping[str, Mapping[str, str]], configured: BrokerId) -> BrokerId | None:
    """None: no directory remembers one."""
    remembered: BrokerId | None = None
    for directory, properties in stored.items():
        text = properties.get(BROKER_ID)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit()):
            raise InconsistentIdentity(
                f"{_file(directory)} has broker.id={text}, which is not a number. Write the id of this broker there"
            )
        expected = configured if configured >= 0 else remembered
        remembered = int(text)
        if expected is not None and expected != remembered:
            whose = "is configured" if configured >= 0 else "is in another directory of log.dirs"
            raise InconsistentIdentity(
                f"{_file(directory)} has broker.id {remembered}, but {expected} {whose}. If the data was moved, set "
                "broker.id to the one there; for a new broker, use log directories without data"
            )
    return remembered


async def _new_broker_id(
    tree: Tree, stored: Mapping[str, Mapping[str, str]], config: BrokerConfig, is_alone: bool
) -> BrokerId:
    if is_alone:
        assigned = await _assigned_brokers(tree)
        return min(assigned) if len(assigned) == 1 else config.reserved_broker_max_id + 1
    for directory, properties in stored.items():
        if BROKER_ID not in properties:
            raise InconsistentIdentity(
                f"{_file(directory)} does not say which broker the directory belongs to: it is damaged. Set broker.id"
            )
    if not config.broker_id_generation_enable:
        raise InvalidSetting("broker.id=-1: an id must be set, as broker.id.generation.enable is false")
    return await generate_broker_id(tree, config.reserved_broker_max_id)


async def _check_assigned(tree: Tree, broker: BrokerId) -> None:
    """A single node whose id is in no assignment of its topics would serve nothing."""
    assigned = await _assigned_brokers(tree)
    if assigned and broker not in assigned:
        others = ", ".join(map(str, sorted(assigned)))
        raise InconsistentIdentity(
            f"broker.id is {broker}, but the topics in {FILE_NAME} are assigned to broker {others}. Set broker.id to "
            f"that in {names.META_PROPERTIES_FILE} and in the settings"
        )


async def _assigned_brokers(tree: Tree) -> set[BrokerId]:
    topics = await tree_reader.topics(tree, await tree.children(znodes.TOPICS) or [])
    return {id for _, topic in topics for partition in topic.partitions.values() for id in partition.replicas}


def _file(directory: str) -> str:
    return os.path.join(directory, names.META_PROPERTIES_FILE)
