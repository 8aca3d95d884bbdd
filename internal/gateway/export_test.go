package gateway

// CheckAudit checks the audit options alone.
func CheckAudit(o *Options) error { return strictPolicy(o.Audit) }

// PlainPath is plainPath.
var PlainPath = plainPath
