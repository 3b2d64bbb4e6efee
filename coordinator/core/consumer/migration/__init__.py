"""Between the classic protocol and KIP-848, both ways, and its members of either."""
