"""The HTTP listener of a node: probes, the JSON API, live events and the web page, in the node's own event loop.

It knows the node by `asks.Asks` alone, and is a stranger to the other doors. Nothing here is imported by a node whose
`http.listeners` is empty.
"""
