"""`dsa guards`: the kinds of guards there are, shipped and registered."""

from dsa.cli.kinds_shown import command_for
from dsa.guards.library import KINDS, OWN, PACKAGES

command = command_for("guards", "guards", KINDS, PACKAGES, OWN)
