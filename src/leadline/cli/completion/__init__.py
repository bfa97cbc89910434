"""leadline completion: what a shell needs to complete commands and options; and the man page, from the same help."""
