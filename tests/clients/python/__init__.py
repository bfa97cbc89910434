"""The clients that are written in Python, each a program of its own."""
