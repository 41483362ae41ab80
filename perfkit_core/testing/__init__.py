"""What an adapter must do, as checks that its own tests call. See :mod:`perfkit_core.testing.conformance`."""
