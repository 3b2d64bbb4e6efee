"""What an operator can do with a group: overrides, balance, canaries and shadow assignors."""
