"""Private servers, vendor stubs that speak the wire, and watchers for the tests."""
