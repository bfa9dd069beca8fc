"""Who is who: the certificate authority, requests, the roster of pinned keys, and mutual TLS settings."""
