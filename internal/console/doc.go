// Package console serves the web console, the static files of which are embedded in the binary.
//
// The console has no state and no rights. In the browser it is one more client of the gateway's API, with the credentials of its user. This
// package serves nothing but its files and the names of the issuers that users may sign in with. See docs/adr/0017-the-console-is-a-client.md.
//
// The sources are in web. The files in static are generated: run `go generate` after a change there.
package console

//go:generate go run ./bundle
