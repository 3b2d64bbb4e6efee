"""Consumer-group coordination: the core, its runtime, its edges."""

if __name__ == "coordinator":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
