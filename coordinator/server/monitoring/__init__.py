"""Who looks at a node's groups as time goes by: the sampler, metrics, traces, KEDA's scaler."""
