"""leadline acls: who may do what on which resource."""
