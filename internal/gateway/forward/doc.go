// Package forward forwards requests to control planes with the identity of their users.
package forward
