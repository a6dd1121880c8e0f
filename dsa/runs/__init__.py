"""The door: runs are started, followed, resumed and removed here."""
