"""The job `audit`: replicas compared from their files."""
