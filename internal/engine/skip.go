package engine

import (
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// skipped compiles a list of groups ("apps"), group versions ("apps/v1") and kinds ("apps/v1/Deployment", or "v1/Secret"
// of the core group). A version may have several kinds ("batch/v1/Job,CronJob"). Entries are separated by semicolons or
// commas; kinds are recognized by their capital letter.
func skipped(apis []string) func(schema.GroupVersionKind) bool {
	skip := map[string]bool{}
	version := "" // of the preceding kind
	separators := func(r rune) bool { return r == ';' || r == ',' }
	for entry := range strings.FieldsFuncSeq(strings.Join(apis, ";"), separators) {
		entry = strings.TrimSpace(entry)
		rest, last := "", entry
		if i := strings.LastIndex(entry, "/"); i >= 0 {
			rest, last = entry[:i], entry[i+1:]
		}
		switch {
		case !isKind(last):
			skip[entry], version = true, ""
			continue
		case rest == "":
			// another kind of the same version
		case strings.Contains(rest, "/"):
			version = rest
		default:
			version = "/" + rest
		}
		skip[version+"/"+last] = true
	}
	return func(gvk schema.GroupVersionKind) bool {
		version := gvk.Group + "/" + gvk.Version
		return skip[version] || skip[version+"/"+gvk.Kind] || (gvk.Group != "" && skip[gvk.Group])
	}
}

func isKind(name string) bool { return name != "" && unicode.IsUpper(rune(name[0])) }
