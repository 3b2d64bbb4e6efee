"""Long runs that try to make the node break its word. Short forms of them run with the tests."""
