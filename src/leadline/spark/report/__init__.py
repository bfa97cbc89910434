"""The job `report`: topics measured and told on one page."""
