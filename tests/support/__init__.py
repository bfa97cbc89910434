"""What tests of several kinds share: a clock to set, logs to open, batches to write."""
