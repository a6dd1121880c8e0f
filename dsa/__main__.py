"""`python -m dsa`: the program, where its script is not on the path."""

from dsa.cli.main import main

main()
