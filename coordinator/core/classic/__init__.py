"""Classic groups: eager, static, cooperative and delayed groups, which share one server protocol."""
