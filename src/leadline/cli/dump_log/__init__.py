"""leadline dump-log: print the contents of log files."""
