"""Admin requests through kafka-python: those that librdkafka does not have."""
