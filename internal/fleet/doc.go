// Package fleet is the way to other control planes: connections to cells,
// the hub and members, with their credentials, limits and health. Everything
// that talks to several control planes goes through it.
package fleet
