"""Group members by clients of others, a program each; python_member.py says how they speak."""
