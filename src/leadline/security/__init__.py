"""Who may connect and what they may do: TLS, SASL, ACLs, quotas, delegation tokens.

    principal, hosts        who asks, and from where, as Kafka writes both
    secret                  what no log line, error or repr shows

The modules here decide. They open no socket, read no clock and draw no random number: what they need is passed in.
`cryptography` and `jwt` are imported where they are first used, so that a broker without TLS starts as fast as ever.
"""
