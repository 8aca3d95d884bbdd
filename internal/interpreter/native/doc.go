// Package native interprets the kinds of Kubernetes itself.
package native
