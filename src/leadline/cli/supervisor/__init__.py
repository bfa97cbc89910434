"""Several brokers of this machine under one supervisor, for `leadline start --brokers` and `leadline cluster up`."""
