"""What a reign has to do, a file each: who asks for what, and how it gets into a write."""
