// Package short sends short requests: on connections that carry one at a time, by whoever makes it.
package short
