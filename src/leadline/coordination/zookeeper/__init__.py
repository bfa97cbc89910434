"""The tree in a real ZooKeeper, through kazoo."""
