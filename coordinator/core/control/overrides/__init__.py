"""Operator overrides of a group's plans: freeze, deploy, drain and pin.

A freeze beats a held share, a held share beats a pin, a pin beats a drain, and all of them beat balance.
`overrides.py` says what is in force, `model/plan_correction.py` what becomes of a plan, `override_commands.py` how
overrides begin and end.
"""
