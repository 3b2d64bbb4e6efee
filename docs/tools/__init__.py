"""What the reference is made of beside its pages: the code's own models, commands, contracts and docstrings.

Everything here is called by `mkdocs build` (`make docs`), and its results by tests/unit/docs/test_reference.py.
"""
