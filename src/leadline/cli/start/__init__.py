"""leadline start: run a broker in the foreground."""
