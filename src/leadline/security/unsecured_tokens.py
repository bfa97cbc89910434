"""OAUTHBEARER tokens without a signature: for development, since any client can log in as any user.

Pure: values in, values out.

Kafka takes them unless a callback handler is set. Here its handler for them must be named, in
`listener.name.<listener>.oauthbearer.sasl.server.callback.handler.class`.

    alg is none, and there is no signature
    exp is required and not over; iat, if there is one, is neither in the future nor after exp
    the token has all of unsecuredValidatorRequiredScope

Options of the login module, in Kafka's names:
    unsecuredValidatorPrincipalClaimName, unsecuredValidatorScopeClaimName, unsecuredValidatorRequiredScope,
    unsecuredValidatorAllowableClockSkewMs
"""

from collections.abc import Mapping
from dataclasses import dataclass

from leadline.config.values import BLANK, InvalidSetting
from leadline.security.oauthbearer import AccessToken, InvalidToken, claim_time, decoded_part
from leadline.security.secret import Secret

_OPTION = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class UnsecuredValidator:
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def of(cls, setting: str, options: Mapping[str, Secret]) -> "UnsecuredValidator":
        """From the options of a login module. Raises InvalidSetting."""

        def option(name: str, default: str) -> str:
            text = options[_OPTION + name].reveal_text().strip(BLANK) if _OPTION + name in options else ""
            return text or default

        skew = option("AllowableClockSkewMs", "0")
        if not skew.isascii() or not skew.isdecimal():
            raise InvalidSetting(f"{setting}: {_OPTION}AllowableClockSkewMs must be a number of at least 0")
        return cls(
            option("PrincipalClaimName", "sub"),
            option("ScopeClaimName", "scope"),
            tuple(option("RequiredScope", "").split()),
            int(skew),
        )

    def validate(self, token: str, now_ms: int) -> AccessToken:
        """Raises InvalidToken."""
        parts = token.split(".")
        if len(parts) != 3 or not parts[0] or not parts[1]:
            raise InvalidToken("a token without a signature has two parts and an empty one")
        header, claims = decoded_part(parts[0]), decoded_part(parts[1])
        if header.get("alg") != "none" or parts[2]:
            raise InvalidToken("the token has a signature")
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip(BLANK):
            raise InvalidToken(f"the token has no {self.principal_claim}")
        expires_ms = round(claim_time(claims, "exp") * 1000)
        self._check_times(claims, expires_ms, now_ms)
        scope = self._scope(claims.get(self.scope_claim))
        if missing := next((part for part in self.required_scope if part not in scope), None):
            raise InvalidToken(f"the token lacks the scope {missing}", f"[{', '.join(self.required_scope)}]")
        return AccessToken(name, scope, expires_ms)

    def _check_times(self, claims: Mapping[str, object], expires_ms: int, now_ms: int) -> None:
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired")
        if claims.get("iat") is None:
            return
        issued_ms = round(claim_time(claims, "iat") * 1000)
        if issued_ms > now_ms + self.clock_skew_ms:
            raise InvalidToken("the token was issued in the future")
        if expires_ms <= issued_ms:
            raise InvalidToken("the token expires before it was issued")

    def _scope(self, claim: object) -> frozenset[str]:
        """A text is one scope as a whole, as in Kafka. Any other value is no scope."""
        parts = claim if isinstance(claim, list) else [claim]
        return frozenset(part.strip(BLANK) for part in parts if isinstance(part, str) and part.strip(BLANK))
