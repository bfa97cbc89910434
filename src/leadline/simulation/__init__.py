"""A whole cluster in one process, on simulated ports: everything that happens follows from one integer."""
