"""Which broker and which cluster log directories belong to: what is missing is completed, what differs is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.broker.identity import Identity, identify
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.config.values import InvalidSetting
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import agree_on_cluster_id
from leadline.errors import InconsistentIdentity
from leadline.runtime.ports import SystemChance, SystemTime
from tests.support import in_memory
from tests.support.in_process import broker_in_process

OURS = {"broker.id": "3", "version": "0", "cluster.id": "ours"}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def settings(**properties: str) -> BrokerConfig:
    return broker_settings({name.replace("_", "."): value for name, value in properties.items()}).broker


def identity(
    path: Path, stored: dict[str, dict[str, str]], config: BrokerConfig, cluster_id: str = "ours", alone: bool = False
) -> Identity:
    async def scenario() -> Identity:
        tree = await EmbeddedTree.open(str(path), SystemTime())
        try:
            await agree_on_cluster_id(tree, cluster_id)
            return await identify(tree, stored, config, SystemChance(), is_alone=alone)
        finally:
            await tree.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize("alone", [True, False])
def test_a_foreign_cluster_id_is_refused(tmp_path: Path, alone: bool) -> None:
    with pytest.raises(InconsistentIdentity, match=r"data/meta\.properties has cluster\.id ours, but .* theirs"):
        identity(tmp_path, {"data": OURS}, settings(), "theirs", alone)


def test_a_broker_id_that_is_not_the_configured_one_is_refused(tmp_path: Path) -> None:
    assert identity(tmp_path, {"data": OURS}, settings(broker_id="3")) == Identity(3, "ours")
    with pytest.raises(InconsistentIdentity, match=r"data/meta\.properties has broker\.id 3, but 4 is configured"):
        identity(tmp_path, {"data": OURS}, settings(broker_id="4"))


def test_directories_of_two_brokers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InconsistentIdentity, match=r"b/meta\.properties has broker\.id 4, but 3 is in another dir"):
        identity(tmp_path, {"a": OURS, "b": OURS | {"broker.id": "4"}}, settings())


@pytest.mark.parametrize("text", ["100q", "", "-5", "²"])
def test_a_broker_id_that_is_no_number_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InconsistentIdentity, match="which is not a number"):
        identity(tmp_path, {"data": OURS | {"broker.id": text}}, settings())


def test_a_directory_that_was_formatted_for_kraft_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InconsistentIdentity, match="formatted for KRaft"):
        identity(tmp_path, {"data": {"version": "1", "node.id": "1", "cluster.id": "ours"}}, settings())


def test_in_a_cluster_a_file_without_a_broker_id_gets_no_new_one(tmp_path: Path) -> None:
    """The replicas of the old broker id would have no broker."""
    with pytest.raises(InconsistentIdentity, match=r"does not say which broker .* Set broker\.id"):
        identity(tmp_path, {"data": {}}, settings())
    assert identity(tmp_path, {"data": {}}, settings(broker_id="3")) == Identity(3, "ours")
    assert identity(tmp_path, {}, settings()).broker == 1001
    with pytest.raises(InvalidSetting, match=r"broker\.id=-1"):
        identity(tmp_path, {}, settings(broker_id_generation_enable="false"))


def test_a_single_node_finds_its_ids_in_its_tree_and_refuses_to_be_another(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def scenario() -> None:
        async with broker_in_process(data, settings={"broker.id": "7"}) as broker:
            await broker.services.cluster.create_topic("t", ((7,),), {})
            cluster_id = broker.services.metadata.cluster_id
        for lost in ("", "broker.id=7\n", f"cluster.id={cluster_id}\n", "nonsense"):
            (data / "meta.properties").write_text(lost)
            async with broker_in_process(data) as broker:
                me = broker.services.metadata
                assert (me.me.id, me.cluster_id) == (7, cluster_id)
        for change, message in (
            ({"broker.id": "8"}, "has broker.id 7, but 8 is configured"),
            ({}, "but the topics in coordination.db are assigned to broker 7"),
        ):
            if not change:
                (data / "meta.properties").write_text(f"broker.id=9\ncluster.id={cluster_id}\n")
            with pytest.raises(InconsistentIdentity, match=message):
                async with broker_in_process(data, settings=change):
                    pass
        (data / "meta.properties").write_text("broker.id=7\ncluster.id=theirs\n")
        with pytest.raises(InconsistentIdentity, match=r"has cluster\.id theirs, but coordination\.db is of cluster"):
            async with broker_in_process(data):
                pass

    asyncio.run(scenario())
