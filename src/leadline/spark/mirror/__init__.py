"""The job `mirror`: topics from cluster to cluster, with a map of offsets."""
