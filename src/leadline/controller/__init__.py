"""The controller: it creates and deletes topics, assigns their partitions and elects their leaders."""
