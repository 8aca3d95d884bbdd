// Package forward passes requests on to control planes in the name of their users.
package forward
