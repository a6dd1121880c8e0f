"""The web page: machines with their verdicts, and runs, in a browser on this computer (`dsa web`, extra `web`)."""
