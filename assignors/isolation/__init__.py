"""Assignors of other people in processes of their own: the one place of this package that starts any.

`pool.Isolation.run` is `muster.assignors.run.run` with a deadline that holds whatever the plugin does: it is
killed. A plugin that loops, eats memory, exits, forks or prints costs whoever asked for its plan that plan,
and nobody else anything.
"""
