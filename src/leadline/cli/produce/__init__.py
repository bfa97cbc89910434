"""leadline produce: write records to a topic."""
