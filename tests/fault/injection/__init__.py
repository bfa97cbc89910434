"""Faults that are injected into a cluster of real processes under load, for `make fault`."""
