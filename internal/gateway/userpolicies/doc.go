// Package userpolicies serves writes of the admission policies and webhooks that users configure. It refuses those that a federation cannot
// enforce, limits the others to the requests of users, and answers when all cells enforce them.
//
// The hub manager copies policies into the cells. An API server applies a policy some time after it has been stored, up to a second. To know
// when, the gateway waits for the copy and then installs a policy of its own, a probe, which refuses one particular request. API servers
// take all policies of a kind into account at once and in the order of their changes, so the refusal shows that the copy is in force. A cell
// that does not show it in time is named in a warning. The probe for webhooks is one that nobody serves. That for parameters
// has a parameter of its own.
package userpolicies
