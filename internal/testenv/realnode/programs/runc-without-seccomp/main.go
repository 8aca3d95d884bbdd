// Runc-without-seccomp is runc for machines without libseccomp, with which runc would have to be linked: it removes the seccomp profile from the
// configuration of a container, and runs the program runc beside it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	err := run()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func run() error {
	if bundle := bundleOf(os.Args[1:]); bundle != "" {
		if err := removeProfile(filepath.Join(bundle, "config.json")); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(filepath.Join(filepath.Dir(self), "runc"), os.Args, os.Environ())
}

// bundleOf returns the directory of the container that the arguments create, nothing if they create none.
func bundleOf(args []string) string {
	for i, arg := range args {
		if dir, found := strings.CutPrefix(arg, "--bundle="); found {
			return dir
		}
		if arg == "--bundle" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func removeProfile(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config, linux map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(content, &config), json.Unmarshal(config["linux"], &linux)); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if content, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}
