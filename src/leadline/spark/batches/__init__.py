"""Record batches and columns: what is decoded and encoded, whoever reads or writes it."""
