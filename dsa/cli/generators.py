"""`dsa generators`: the kinds of generators there are, shipped and registered."""

from dsa.cli.guards import command_for
from dsa.generators.generator_kinds import KINDS, OWN, PACKAGES

command = command_for("generators", "generators", KINDS, PACKAGES, OWN)
