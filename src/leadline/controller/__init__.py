"""One broker decides for all: which topics there are, where their partitions lie, who leads them."""
