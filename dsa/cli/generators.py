"""`dsa generators`: the kinds of generators, shipped and registered, with their options."""

from dsa.cli.guards import command_for
from dsa.generators.generator_kinds import KINDS, OWN, PACKAGES

command = command_for("generators", "generators", KINDS, PACKAGES, OWN)
