"""The login of a client by OAUTHBEARER, from its properties: where its token comes from, and when the next one is due.

    sasl.login.callback.handler.class             the token
    OAuthBearerLoginCallbackHandler               of sasl.oauthbearer.token.endpoint.url: a file, or a server that gives
                                                  it for the options clientId, clientSecret and scope of the JAAS line
    OAuthBearerUnsecuredLoginCallbackHandler      is written by the client itself, from the options unsecuredLogin...
    none                                          as the first, if there is a URL; otherwise the login is refused

Kafka's clients write an unsecured token if there is no handler. Here it must be asked for, as on a listener.
librdkafka's names for the same things are accepted; if both are set, Kafka's count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leadline.config.security import LOGIN_HANDLER, LOGIN_HANDLERS, UNSECURED_LOGIN_HANDLER, SecurityConfig
from leadline.config.values import InvalidSetting
from leadline.security.key_stores import PEM, ReadFile
from leadline.security.oauthbearer_client import RefreshRules, UnsecuredLogin, extensions_of
from leadline.security.secret import Secret
from leadline.security.token_request import TOKEN_URL, TokenRequest, refresh_rules

OIDC = "sasl.oauthbearer.method"
EXTENSIONS = "sasl.oauthbearer.extensions"
LOGIN_TIMES = """
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
""".split()
# The options of Kafka's login module under librdkafka's names. The first that is set counts.
OPTIONS = {
    "sasl.oauthbearer.client.credentials.client.id": "clientId",
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.credentials.client.secret": "clientSecret",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
    "https.ca.location": "ssl.truststore.location",
    "https.ca.pem": "ssl.truststore.certificates",
}
TOKEN_NAMES = [TOKEN_URL, LOGIN_HANDLER, *OPTIONS, OIDC, EXTENSIONS]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginConfig(SecurityConfig):
    """The settings of a client: their names, defaults and limits are those of a broker."""


@dataclass(frozen=True, slots=True)
class TokenLogin:
    source: UnsecuredLogin | TokenRequest
    extensions: Mapping[str, str]
    rules: RefreshRules


def token_login(
    setting: str, properties: Mapping[str, str], options: Mapping[str, Secret], read: ReadFile
) -> TokenLogin:
    """`setting`: the name of the JAAS line, `options` those of its login module. Raises InvalidSetting."""
    config = LoginConfig.parse({name: properties[name] for name in (*LOGIN_TIMES, TOKEN_URL) if name in properties})
    rules = refresh_rules(config)
    if is_unsecured(properties):
        extensions = extensions_of(setting, options, is_unsecured=True)
        return TokenLogin(UnsecuredLogin.of(setting, options), extensions, rules)
    if LOGIN_HANDLER not in properties and TOKEN_URL not in properties:
        raise InvalidSetting(
            f"{LOGIN_HANDLER} is missing: {LOGIN_HANDLERS[0]} gets a token from {TOKEN_URL}, "
            f"{UNSECURED_LOGIN_HANDLER} writes one without a signature"
        )
    if properties.get(OIDC, "oidc").lower() != "oidc":
        raise InvalidSetting(f"{OIDC}={properties[OIDC]}: this command has oidc")
    own = dict(_librdkafka_options(properties)) | dict(options)
    return TokenLogin(
        TokenRequest.of(setting, config, own, read), extensions_of(setting, own, is_unsecured=False), rules
    )


def is_unsecured(properties: Mapping[str, str]) -> bool:
    return properties.get(LOGIN_HANDLER) == UNSECURED_LOGIN_HANDLER


def _librdkafka_options(properties: Mapping[str, str]) -> Iterator[tuple[str, Secret]]:
    for name in reversed(OPTIONS):
        if name in properties:
            yield OPTIONS[name], Secret.of(properties[name])
    if "https.ca.location" in properties or "https.ca.pem" in properties:
        yield "ssl.truststore.type", Secret.of(PEM)
    for pair in filter(None, (text.strip() for text in properties.get(EXTENSIONS, "").split(","))):
        name, _, value = pair.partition("=")
        yield f"extension_{name}", Secret.of(value)
