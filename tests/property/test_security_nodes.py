"""Nodes that anybody may have written: each is decoded, or refused as malformed, and nothing else happens."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from leadline.coordination.node_json import MalformedNode
from leadline.security.acl_nodes import decode_acls, decode_change
from leadline.security.client_quotas import QuotaEntity
from leadline.security.delegation_tokens import DelegationToken, decode_token, encode_token
from leadline.security.principal import Principal
from leadline.security.quota_nodes import client_quotas_in, connection_rate_in, entity_of, entity_path

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=12) | st.floats(allow_nan=False)
FIELDS = """
acls version principal host operation permissionType resourceType name patternType renewers owner tokenId
tokenRequester issueTimestamp maxTimestamp expiryTimestamp config
""".split()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=8)
)
nodes = st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode())


@given(nodes)
def test_whatever_a_node_holds_it_is_decoded_or_malformed(data: bytes) -> None:
    for path in ("/kafka-acl-changes/acl_changes_0000000001", "/kafka-acl-extended-changes/acl_changes_0000000001"):
        with suppress(MalformedNode):
            decode_change(path, data)
    with suppress(MalformedNode):
        decode_acls("/kafka-acl/Topic/t", data)
    with suppress(MalformedNode):
        decode_token("/delegation_token/tokens/t", data)


@given(
    st.dictionaries(
        st.sampled_from(["producer_byte_rate", "request_percentage", "connection_creation_rate"]), st.text()
    )
)
def test_whatever_a_quota_is_it_is_a_number_or_malformed(config: dict[str, str]) -> None:
    with suppress(MalformedNode):
        client_quotas_in("/config/users/u", config)
    with suppress(MalformedNode):
        connection_rate_in("/config/ips/i", config)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(names, names)
def test_the_path_of_any_user_and_client_id_leads_back_to_them(user: str, client_id: str) -> None:
    for entity in (QuotaEntity(user), QuotaEntity(user, client_id), QuotaEntity(None, client_id)):
        assert entity_of(entity_path(entity)) == entity


@given(names, st.lists(names, max_size=3), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_token_comes_back_as_it_was(name: str, renewers: list[str], issue_ms: int, expiry_ms: int) -> None:
    owner = Principal("User", name)
    token = DelegationToken(
        "id",
        owner,
        Principal("User", name[::-1]),
        tuple(Principal("User", r) for r in renewers),
        issue_ms,
        2**62,
        expiry_ms,
    )
    assert decode_token("/delegation_token/tokens/id", encode_token(token)) == token
