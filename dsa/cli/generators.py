"""`dsa generators`: the kinds of generators there are, shipped and registered."""

from dsa.cli.kinds_shown import command_for
from dsa.generators.library import KINDS

command = command_for("generators", "generators", KINDS)
