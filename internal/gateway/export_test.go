package gateway

import "net/http"

// CheckAudit checks the audit options alone.
func CheckAudit(o *Options) error { return strictPolicy(o.Audit) }

// PlainPath is plainPath.
var PlainPath = plainPath

// WithConsole returns the handler that stands in front of all others of a gateway.
func WithConsole(on bool, next http.Handler) http.Handler {
	c := &Config{options: CompletedOptions{&completedOptions{Options: &Options{Console: on}}}}
	return c.withConsole(next)
}
