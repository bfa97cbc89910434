"""Groups and transactions: state machines whose journal is an internal topic. Decide, append, answer once committed."""
