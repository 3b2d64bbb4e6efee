"""Groups that another broker coordinates: why they rebalanced, from the records that it keeps of them."""
