"""All settings that a start refuses, not only the first."""

from leadline.config.broker import refusals


def test_each_refused_setting_is_named_and_no_other() -> None:
    errors = refusals(
        {
            "listeners": "INSIDE://localhost:9092",
            "metric.reporters": "com.example.Reporter",
            "config.providers": "vault",
            "log.retention.bytes": "many",
            "num.io.threads": "4",
            "acme.setting": "1",
            "listener.name.inside.ssl.client.auth": "maybe",
            "listener.name.outside.ssl.client.auth": "maybe",  # no listener has this name, so it has no effect
        }
    )
    assert set(errors) == {
        "metric.reporters",
        "config.providers",
        "log.retention.bytes",
        "listener.name.inside.ssl.client.auth",
    }
