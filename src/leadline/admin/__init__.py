"""What commands and the console share: clients of a cluster, the values that they read, and their text."""
