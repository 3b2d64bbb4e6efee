"""Groups of the upstream's own coordinator, beside those that are Muster's.

guard.py    KB-X9: who reads past Muster in a group of ours
adopt.py    KB-M1, KB-M3: positions are taken over, and given back
mirror.py   KB-M4: what counts here is committed there, too
survey.py   which nodes there are and whose each shard is, as the upstream tells it
"""
