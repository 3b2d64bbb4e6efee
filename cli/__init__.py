"""The command line, one small file per command."""

if __name__ == "cli":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
