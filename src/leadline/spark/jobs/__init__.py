"""The job `run`: many topics as tables, in one process that is meant to run for a year."""
