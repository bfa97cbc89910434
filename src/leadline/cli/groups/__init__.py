"""leadline groups: list, describe, reset and delete groups."""
