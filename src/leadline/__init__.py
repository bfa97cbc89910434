"""Leadline: a log broker that speaks Kafka's protocol and writes Kafka's files.

The packages, top to bottom, and what each is for: docs/ARCHITECTURE.md.
"""

__version__ = "0.1.0"
