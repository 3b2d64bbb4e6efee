"""Who may do what, of a whole cluster: `__security`, which one node leads and all nodes follow."""
