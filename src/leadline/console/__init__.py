"""The console: web pages about any Kafka cluster. It is a client of the cluster like any other."""
