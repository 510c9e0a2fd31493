"""Wire APIs: row to body bytes, reply to verdict. Pure."""
