"""The workloads of clients in a simulation: one class each, which records its history."""
