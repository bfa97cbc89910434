"""Moves of partitions to other brokers: plans, their progress, throttles."""
