if __name__ == "workshop":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
