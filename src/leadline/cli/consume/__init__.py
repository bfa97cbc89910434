"""leadline consume: print the records of a topic."""
