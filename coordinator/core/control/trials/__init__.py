"""An assignor on trial: planned next to the one that counts (shadow), or in its place for a while (canary)."""
