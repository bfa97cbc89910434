"""Java's system properties in KAFKA_OPTS: those that are obeyed, refused and ignored."""

import pytest

from leadline.config.java_options import system_properties
from leadline.config.values import InvalidSetting


def test_the_last_value_of_a_property_counts_and_options_of_the_jvm_are_ignored() -> None:
    text = "-Xmx1G -Djava.security.auth.login.config=/a  -Dfoo=bar -Djava.security.auth.login.config=/b=c"
    assert system_properties({"KAFKA_OPTS": text}) == {"java.security.auth.login.config": "/b=c"}
    assert system_properties({}) == {}


def test_what_zookeepers_login_is_chosen_by_is_obeyed() -> None:
    text = "-Dzookeeper.sasl.client=false -Dzookeeper.sasl.clientconfig=Mine"
    assert system_properties({"KAFKA_OPTS": text}) == {
        "zookeeper.sasl.client": "false",
        "zookeeper.sasl.clientconfig": "Mine",
    }


def test_the_configuration_of_kerberos_is_a_file_and_what_would_take_its_place_is_refused_by_name() -> None:
    text = "-Djava.security.krb5.conf=/etc/other.conf -Dsun.security.krb5.debug=true"
    assert system_properties({"KAFKA_OPTS": text}) == {"java.security.krb5.conf": "/etc/other.conf"}
    for name in ("java.security.krb5.realm", "java.security.krb5.kdc"):
        with pytest.raises(InvalidSetting, match=f"-D{name} is not supported: use -Djava.security.krb5.conf"):
            system_properties({"KAFKA_OPTS": f"{text} -D{name}=X"})


@pytest.mark.parametrize(
    "name",
    ["zookeeper.client.secure", "zookeeper.ssl.keyStore.location", "zookeeper.sasl.client.username"],
)
def test_what_protects_the_connection_to_zookeeper_in_another_way_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"KAFKA_OPTS: -D{name} is not supported"):
        system_properties({"KAFKA_OPTS": f"-D{name}=hush"})
