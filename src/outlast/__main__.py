"""`python -m outlast`: the command line."""

from outlast.cli import main

main()
