"""The state topic: whether it is the one it was. Nothing is made anew by itself (KB-H1).

marks.py     what the upstream is asked to remember of it
watching.py  looked at while a node runs
again.py     an operator has looked, and says what counts from now on
"""
