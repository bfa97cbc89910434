"""Real clients in many languages, all doing the same things with one Leadline broker."""
