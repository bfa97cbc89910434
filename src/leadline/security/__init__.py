"""Who may connect and what they may do: TLS, SASL, ACLs, quotas, delegation tokens.

    principal, hosts        the principal and the client's address, as Kafka writes both
    secret                  a value that no log line, error or repr shows
    sasl_authenticator      the login of a connection: frames in, what to send, hold back or close out
    sasl_mechanisms         the interface of a mechanism: `plain`, `scram` and `oauthbearer` are mechanisms
    scram_credentials, jaas, jwks   where users, their passwords and keys come from
    tls, key_stores         the SSL contexts of a listener, from Kafka's settings and Java's stores
    distinguished_name, principal_mapping   from a client's certificate to its principal
    password_encoder        passwords among the dynamic settings

The modules here decide. They open no socket, read no clock and draw no random number: what they need is passed in.
`cryptography` and `jwt` are imported where they are first used, so that a broker without TLS starts as fast as ever.
"""
