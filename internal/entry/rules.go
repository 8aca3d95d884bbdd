package entry

import (
	"fmt"
	"time"

	"github.com/cellplane/cellplane/api/names"
)

// Rules are what a policy says about the entries of its copies. The zero value opens none, and leaves them open.
type Rules struct {
	// Auto opens an entry when a person writes to the copy, and For is for how long; 0 means without end.
	Auto bool
	For  time.Duration
	// Discard closes an entry when its time is over.
	Discard bool
}

// RuleKeys are the annotations of policies, bindings and Works that have rules.
var RuleKeys = []string{names.AutoEntryAnnotation, names.EntryExpiryAnnotation}

// RulesOf reads the rules in annotations; nil means that there are none. The error names the annotation that is invalid.
func RulesOf(annotations map[string]string) (*Rules, error) {
	auto, expiry := annotations[names.AutoEntryAnnotation], annotations[names.EntryExpiryAnnotation]
	if auto == "" && expiry == "" {
		return nil, nil
	}
	r := &Rules{Auto: auto != "", Discard: expiry == names.EntryExpiryDiscard}
	if auto != "" {
		lasting, err := time.ParseDuration(auto)
		if err != nil || lasting < 0 {
			return nil, fmt.Errorf("the annotation %s is %q and not a duration like 2h; correct it in the policy", names.AutoEntryAnnotation, auto)
		}
		r.For = lasting
	}
	if expiry != "" && expiry != names.EntryExpiryStay && expiry != names.EntryExpiryDiscard {
		return nil, fmt.Errorf("the annotation %s is %q, but must be %s or %s; correct it in the policy", names.EntryExpiryAnnotation, expiry, names.EntryExpiryStay, names.EntryExpiryDiscard)
	}
	return r, nil
}

// Ends reports whether an entry is over by itself.
func (r *Rules) Ends(e *Entry, now time.Time) bool { return r != nil && r.Discard && e.Overdue(now) }
