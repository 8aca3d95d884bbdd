package rebalance

// OpenStore lets the tests of the whole reach beneath an API server.
var OpenStore = openStore
