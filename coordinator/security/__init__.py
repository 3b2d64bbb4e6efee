"""Who may do what: identities, access control lists, users and tokens, quotas. Pure: a store keeps it, the doors ask.

A node with `authorizer=none` imports the identity of nobody from here, and nothing else.
"""
