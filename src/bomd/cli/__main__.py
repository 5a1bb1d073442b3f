"""`python -m bomd.cli`, as `torchrun` starts it."""

from bomd.cli import main

main()
