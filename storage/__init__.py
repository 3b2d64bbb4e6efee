"""Record logs in Kafka's on-disk format, and a broker over them."""

if __name__ == "storage":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
