"""The tree of versioned nodes that brokers agree through: ZooKeeper's, or our own for a single node."""
