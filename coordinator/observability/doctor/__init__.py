"""What is wrong with groups and their node, why that matters, and what to do: pure rules over facts."""
