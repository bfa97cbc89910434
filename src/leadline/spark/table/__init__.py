"""The jobs `table`, `verify` and `replay`: topics as tables, and back."""
