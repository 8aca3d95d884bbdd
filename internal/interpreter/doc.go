// Package interpreter tells what an object means to the federation: how many replicas it asks for and what they need,
// how to give it a share of them, which fields belong to the member it runs in, how members' statuses add up, whether
// it is healthy and what it refers to.
//
// The answers come from the first of four layers that has one, operation by operation: the Lua scripts of
// ResourceInterpreterCustomizations, interpreter webhooks, what is built in for well-known third-party kinds, and
// what is built in for Kubernetes' own. Where no layer has an answer, an object has no replicas and no dependencies,
// keeps nothing, its whole status is reported but not added up, and it is healthy once it is there.
//
// No operation changes the objects it is given. An operation that returns an object returns the one it was given if
// nothing has to change; otherwise the new one may share unchanged parts with it, and must be copied before it is
// edited in place.
package interpreter
