"""The job `report`: topics measured and shown on one page."""
