"""leadline transactions: list and describe transactions, find and abort hanging ones."""
