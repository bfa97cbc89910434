"""leadline cluster: a ZooKeeper and some brokers on this machine."""
