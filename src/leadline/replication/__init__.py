"""Copies that agree: the leader of a partition, its followers, and what is safe to show."""
