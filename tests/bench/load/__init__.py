"""Whole brokers under load: Leadline and Apache Kafka beside each other, asked the same over their sockets."""
