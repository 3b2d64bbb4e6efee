"""The ledger of elections, `__elections`: who leads what since when and why, and what unclean elections cost."""
