"""Where runs are kept: durable in one SQLite file, or in memory."""
