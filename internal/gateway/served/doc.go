// Package served limits the API of users to what the ServedAPIs of the hub list for their groups.
//
// The package has three parts: Limits and Limit decide, and are pure; APIs follows the objects of the hub; Handler refuses requests, and
// gives the Limit of a user to the handlers that serve discovery and OpenAPI. All three see a request as it was authenticated, or
// impersonated, and before RBAC: a request needs both.
//
// A limit must not be passed by a gateway that does not know it. A gateway that has started without the hub uses the objects that it knew
// before. If it knows none it serves only those who are never limited.
package served
