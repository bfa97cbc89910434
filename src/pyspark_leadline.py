"""Spark finds the format `leadline` here: it looks for a DefaultSource in every module whose name begins so."""

from leadline.spark.topics.source import LeadlineSource as DefaultSource

__all__ = ["DefaultSource"]
