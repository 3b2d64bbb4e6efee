"""KEDA's external scaler: how many replicas the consumers of a group should have. Loaded only with `scaler.enable`."""
