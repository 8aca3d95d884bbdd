package difference

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Describe says what becomes of the field of an object of a kind. It does not show the content of Secrets, which kubectl copies into an annotation.
func (d Difference) Describe(kind string) string {
	if kind == "Secret" && !strings.HasPrefix(d.Field, "metadata.labels") {
		return d.Field + " would change"
	}
	return fmt.Sprintf("%s: %s -> %s", d.Field, describeValue(d.From), describeValue(d.To))
}

func describeValue(value any) string {
	if value == nil {
		return "nothing"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	const most = 200
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "..."
	}
	return string(raw)
}
