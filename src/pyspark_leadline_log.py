"""Spark finds the format `leadline-log` here: it looks for a DefaultSource in every module whose name begins so."""

from leadline.spark.files.log_source import LeadlineLogSource as DefaultSource

__all__ = ["DefaultSource"]
