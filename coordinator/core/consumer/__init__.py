"""KIP-848 groups: members reconcile one by one towards a target that the coordinator decides."""
