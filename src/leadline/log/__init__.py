"""Bytes on disk: the segmented log of a partition, its files, and the directories that hold them."""
