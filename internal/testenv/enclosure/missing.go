package enclosure

import (
	"os"
	"os/exec"
	"slices"
	"strings"
)

// RequiredEnv is set where tests must run in enclosures, and fail if the machine lacks something.
const RequiredEnv = "CELLPLANE_TEST_NODE"

// Missing returns what this machine lacks for an enclosure, in words, or nothing.
func Missing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		missing = append(missing, "the program ip (package iproute2)")
	}
	all, err := hierarchies()
	if err != nil {
		return append(missing, err.Error())
	}
	for _, controller := range controllers {
		if !slices.ContainsFunc(all, func(c cgroup) bool { return slices.Contains(strings.Split(c.Options, ","), controller) }) {
			return append(missing, "the controllers of cgroup v1, such as "+controller)
		}
	}
	return missing
}
