"""Pictures of groups as SVG: pure functions of plain values, drawn on the server.

Colours are classes of the style sheet.
"""
