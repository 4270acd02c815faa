"""TDS 7.4 and 8.0: what lies between a driver and the engine.

`server` accepts, `connection` runs one client, `packets` frames, `tls`, `prelogin` and `login`
open, `request` and `values` read, `rpc` dispatches, `response` and `tokens` answer, `typeinfo`
and `rowenc` know the form of types and rows on the wire.
"""
