// Package native knows the kinds of Kubernetes itself.
package native
