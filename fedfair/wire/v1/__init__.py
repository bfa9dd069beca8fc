"""Generated from `proto/fedfair/v1/federation.proto` by `make generate`; only `codec` imports it."""
