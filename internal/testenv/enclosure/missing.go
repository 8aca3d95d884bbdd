package enclosure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// RequiredEnv is set where tests must run in enclosures, and fail if the machine lacks something.
const RequiredEnv = "CELLPLANE_TEST_NODE"

// Missing returns what this machine lacks for an enclosure, in words, or nothing. It tries what cannot be seen otherwise: containers may not have all
// rights of root.
func Missing(options Options) []string {
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
			missing = append(missing, "the controllers of cgroup v1, such as "+controller)
			break
		}
	}
	if len(missing) > 0 {
		return missing
	}
	if err := try(options); err != nil {
		missing = append(missing, fmt.Sprintf("the means for cgroups and namespaces (%s)", strings.Join(strings.Fields(err.Error()), " ")))
	}
	return missing
}

// try creates an enclosure without tests and removes it.
func try(options Options) error {
	options.Prepare = nil
	e := &Enclosure{Options: options, Trial: true}
	var stderr bytes.Buffer
	code, err := e.run(&stderr)
	if err == nil && code != 0 {
		return errors.New(stderr.String())
	}
	return err
}
