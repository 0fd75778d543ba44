//! Derbent, a programmable HTTP edge proxy on Pingora.
