"""leadline migrate: from Apache Kafka's brokers to Leadline's."""
