"""Collectors: each reads parts of a broker and yields families of samples. After a step of its work it yields None."""
