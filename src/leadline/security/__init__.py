"""Who may connect and what they may do: authentication, ACLs, quotas, delegation tokens."""
