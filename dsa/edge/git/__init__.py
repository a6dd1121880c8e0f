"""Artifacts in git: a bare repository in which every run is a branch and every record a commit."""

from dsa.edge.git.git_artifacts import GitArtifacts
from dsa.edge.git.git_branch import remove_branch, run_ids

__all__ = ["GitArtifacts", "remove_branch", "run_ids"]
