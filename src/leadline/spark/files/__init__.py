"""Log directories without a broker: the format `leadline-log`."""
