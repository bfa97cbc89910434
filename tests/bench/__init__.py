"""How fast Leadline is beside Apache Kafka 3.8.0: both sides of every ratio, on the same files, in one run."""
