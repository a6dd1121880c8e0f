"""Artifacts in git: a bare repository in which every run is a branch and every record a commit."""

from dsa.edge.git.repository import remove_branch, run_ids
from dsa.edge.git.store import GitArtifacts

__all__ = ["GitArtifacts", "remove_branch", "run_ids"]
