"""The record batch, format version 2: the unit that producers send, logs store and consumers fetch."""
