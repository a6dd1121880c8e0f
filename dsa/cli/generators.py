"""`dsa generators`: the kinds of generators there are, shipped and registered."""

from dsa.cli.kinds_shown import command_for
from dsa.generators.library import KINDS, OWN, PACKAGES

command = command_for("generators", "generators", KINDS, PACKAGES, OWN)
