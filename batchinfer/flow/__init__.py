"""How fast: pacing, retry policy, outage. Pure; `now` and randomness are arguments."""
