"""`muster groups freeze`, `deploy`, `drain`, `pin` and `resume`: what operators do with a group that works."""
