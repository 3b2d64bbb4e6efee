"""What to change about a group, with figures from its own history. Pure; rules EX-A... in docs/design/explain.md."""
