"""An assignor on trial: planned beside the one that counts (shadow), or in its place for a while (canary)."""
