"""Record batches and columns: decoding and encoding for all readers and writers."""
