"""The JAAS line of a listener with GSSAPI: the key of a broker, and what it is used for."""

import asyncio
import threading

import pytest

from leadline.broker.kerberos_logins import KerberosLogins
from leadline.config.broker import broker_settings
from leadline.config.security import SecurityConfig
from leadline.config.values import InvalidSetting
from leadline.log.files import read_file
from leadline.runtime.kerberos import KerberosError
from leadline.runtime.ports import OsFiles
from leadline.security.jaas import LoginModule, parse_jaas_line
from leadline.security.principal import Principal
from leadline.security.sasl_client_authenticator import LoginRefused, LoginRequest
from leadline.security.sasl_mechanisms import Authenticated, Failed, Outcome
from leadline.security.secret import Secret
from leadline.wire.frames import SIZE, response_frame
from leadline.wire.messages import SaslHandshakeResponse
from leadline.wire.primitives import BUFFERS
from tests.support.scripted_kerberos import REALM, ScriptedKerberos

SETTING = "listener.name.x.gssapi.sasl.jaas.config"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
KAFKA = f"kafka/host@{REALM}"
KEY = f"useKeyTab=true storeKey=true keyTab='{__file__}' principal='{KAFKA}'"  # a file that is there


def read(path: str) -> bytes:
    return read_file(OsFiles(), path)


def line(options: str = "") -> LoginModule:
    """Of two options of a name, the last one counts."""
    return parse_jaas_line(SETTING, Secret.of(f"{MODULE} required {KEY} {options};"))


def config(**changes: str) -> SecurityConfig:
    properties = {"sasl.kerberos.service.name": "kafka"} | {
        name.replace("_", "."): value for name, value in changes.items()
    }
    return broker_settings({name: value for name, value in properties.items() if value}).of_listener("PLAINTEXT")


def logins(kerberos: ScriptedKerberos | None = None) -> KerberosLogins:
    return KerberosLogins(kerberos or ScriptedKerberos(KAFKA), read, {})


def outcome_for(client: str, settings: SecurityConfig) -> Outcome:
    exchange = logins().exchanges_of(settings, SETTING, line())()
    exchange.evaluate(f"ticket {client} for kafka@host".encode(), 0).run()
    return exchange.evaluate(b"wrapped \1\0\0\0", 0).run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("useKeyTab=false storeKey=no", "useKeyTab=true, storeKey=true missing: a broker has the key of its principal"),
        ("storeKey=false", ": storeKey=true missing: a broker has the key of its principal in a key table"),
        ("useTicketCache=true", "useTicketCache=true is not supported: a broker has the key"),
        ("keyTab='' principal=''", "keyTab and principal missing: a broker has the key"),
        ("keyTab='/no/such'", "keyTab=/no/such: No such file"),
        ("serviceName=other", "serviceName=other is not sasl.kerberos.service.name=kafka"),
    ],
)
def test_a_line_without_the_key_of_a_service_is_refused_by_its_name(options: str, message: str) -> None:
    for refused in (logins().exchanges_of, logins().own_logins):
        with pytest.raises(InvalidSetting) as error:
            refused(config(), SETTING, line(options))
        assert str(error.value).startswith(f"{SETTING}: ")
        assert message in str(error.value)


def test_a_key_table_that_lacks_the_key_stops_the_start() -> None:
    with pytest.raises(InvalidSetting, match=rf"^{SETTING}: No key table entry found for x@Y$"):
        logins().exchanges_of(config(), SETTING, line("principal='x@Y'"))


def test_the_name_of_the_service_is_a_setting_or_an_option() -> None:
    logins().exchanges_of(config(sasl_kerberos_service_name=""), SETTING, line("serviceName=kafka"))
    with pytest.raises(
        InvalidSetting, match=r"^sasl\.kerberos\.service\.name is not set: GSSAPI needs it, or the option"
    ):
        logins().exchanges_of(config(sasl_kerberos_service_name=""), SETTING, line())


def test_the_rules_of_the_listener_say_which_user_a_principal_is() -> None:
    assert outcome_for(f"alice@{REALM}", config()) == Authenticated(Principal("User", "alice"), is_silent=True)
    assert isinstance(outcome_for("alice@OTHER", config()), Failed)
    upper = config(sasl_kerberos_principal_to_local_rules="RULE:[1:$1]/U,DEFAULT")
    assert outcome_for("alice@OTHER", upper) == Authenticated(Principal("User", "ALICE"), is_silent=True)
    with pytest.raises(InvalidSetting, match=r"sasl\.kerberos\.principal\.to\.local\.rules: Invalid rule: RULE"):
        outcome_for("alice@OTHER", config(sasl_kerberos_principal_to_local_rules="RULE"))


def test_without_a_default_realm_the_rule_default_applies_to_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(kerberos: ScriptedKerberos) -> str:
        raise KerberosError("Configuration file does not specify default realm")

    monkeypatch.setattr(ScriptedKerberos, "default_realm", fail)
    assert isinstance(outcome_for(f"alice@{REALM}", config()), Failed)


def test_a_key_distribution_center_that_is_down_fails_own_logins_alone() -> None:
    kerberos = ScriptedKerberos(KAFKA)
    kerberos.is_down = True
    logins(kerberos).exchanges_of(config(), SETTING, line())
    login = logins(kerberos).own_logins(config(), SETTING, line())("other")
    login.begin()
    pieces = response_frame(SaslHandshakeResponse(), 1, 1)
    step = login.receive(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))[SIZE.size :])
    assert not isinstance(step, LoginRequest)
    with pytest.raises(LoginRefused, match="GSSAPI: Cannot contact any KDC"):
        login.resume(step.run())  # type: ignore[union-attr]


def test_kerberos_reads_the_file_of_javas_property() -> None:
    kerberos = ScriptedKerberos()
    KerberosLogins(kerberos, read, {})
    assert kerberos.config == ""
    KerberosLogins(kerberos, read, {"java.security.krb5.conf": "/there/krb5.conf"})
    assert kerberos.config == "/there/krb5.conf"


def test_own_logins_that_hang_do_not_hold_up_those_of_clients() -> None:
    async def main() -> None:
        kerberos, released = logins(), threading.Event()
        hanging = [asyncio.create_task(kerberos.initiating.run(released.wait)) for _ in range(20)]
        assert await kerberos.accepting.run(lambda: "a client") == "a client"
        assert not any(task.done() for task in hanging)
        released.set()
        await asyncio.gather(*hanging)
        kerberos.close()

    asyncio.run(main())
