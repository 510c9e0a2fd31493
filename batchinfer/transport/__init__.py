"""The only room that knows an HTTP client; network trouble becomes a Fault value."""
