"""Who may do what, at the edge: the store in the log, what the doors are given. Imported only where it is wanted."""
