"""What the calls of gRPC and HTTP need rights for: asked before a handler runs, and of what it answers.

The table is `muster.coordinator.security.acl.rights`. Imported only with `authorizer=acl`.
"""
