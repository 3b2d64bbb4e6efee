"""The rules, a file for each family; `table.py` beside this folder names them all."""
