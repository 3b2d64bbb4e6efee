"""Plans of classic groups that the coordinator makes (`group.remote.assignor`)."""
