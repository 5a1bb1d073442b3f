"""What is fast, how much, against what, and how far from the floor: `python -m evidence.bench cpu` or `gpu`."""
