"""Settings of a group: a setting is an entry where its meaning is (`assignor_choice.py`, ...), and a line in
`table.py`.

Doors, command line, documentation and tests follow from the table. Rules read a setting by its entry:
`ASSIGNOR_OPTIONS.of(step.state, group.id)`.
"""
