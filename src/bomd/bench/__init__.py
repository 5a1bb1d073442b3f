"""What is fast, how much, against what, and how far from the floor: `python -m bomd.bench cpu` or `gpu`."""
