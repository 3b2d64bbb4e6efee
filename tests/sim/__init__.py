"""The deterministic simulator: one seed decides workload, network, crashes and time."""
