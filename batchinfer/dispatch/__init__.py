"""Choreography: a bounded pool of workers, the gate, one attempt, the scribe, the drain."""
