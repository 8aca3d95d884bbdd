// Package agentcertificates decides about requests for client certificates of agents. The hub's kube-controller-manager signs those that are
// approved.
//
// A bootstrap token may request the certificate of a cluster that does not exist yet. The Cluster is created before the request is approved,
// with the public key of the request. So a name is given to one key only: a token can neither take over a cluster that exists nor get a
// certificate in advance for one that will be registered by others. The same key may ask again, which makes a registration that was
// interrupted repeatable.
//
// An agent may request its next certificate. The new key is added to its Cluster before the request is approved. Gateways accept no other
// keys, so certificates of a cluster that was removed, also if its name is used again, are not accepted any more.
package agentcertificates
