"""The real Apache Kafka 3.8.0, to hold Leadline against: its servers, its tools, its storage classes as an oracle."""
