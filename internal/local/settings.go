package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/process"
)

// The parts of Cellplane itself, named like the commands that run them.
const (
	HubManager     = "hub-manager"
	Gateway        = "gateway"
	ClusterGateway = "cluster-gateway"
	Engine         = "engine"
	Agent          = "agent"
)

// FederationControllers is the folder of the stock controllers that run against the gateway.
const FederationControllers = "federation"

// programs are all names that settings of parts may have.
var programs = []string{
	HubManager, Gateway, ClusterGateway, Engine, Agent,
	kubebin.Etcd, kubebin.KubeAPIServer, kubebin.KubeControllerManager, kubebin.KubeScheduler, kubebin.Kwok, kubebin.MetricsServer,
}

// Settings change how the processes of a federation run. The zero value changes nothing.
type Settings struct {
	// PodStreams says whether simulated pods answer logs, exec, attach and port-forward. The default is true.
	PodStreams *bool `json:"podStreams,omitempty"`
	// Fsync says whether etcd flushes its writes to disk. The default is true.
	Fsync *bool `json:"fsync,omitempty"`
	// MetricsAgents says whether members in push mode have an agent, too: it reports metrics. The default is that of the Options.
	MetricsAgents *bool `json:"metricsAgents,omitempty"`
	// MetricsServer says whether members have metrics-server. The default is that of the Options.
	MetricsServer *bool `json:"metricsServer,omitempty"`
	// Env are environment variables of all processes.
	Env map[string]Value `json:"env,omitempty"`
	// Parts are the settings of single programs ("engine") or processes ("cell-a/engine"). Those of a process win.
	Parts map[string]Part `json:"parts,omitempty"`
}

// Part holds the settings of a program or a process.
type Part struct {
	// Flags are command-line flags, without leading dashes. They replace flags that are set by default.
	Flags map[string]Values `json:"flags,omitempty"`
	// Env are environment variables.
	Env map[string]Value `json:"env,omitempty"`
}

// Value is a string; files may also give a number or a boolean.
type Value string

// UnmarshalJSON accepts any scalar.
func (v *Value) UnmarshalJSON(data []byte) error {
	var text string
	switch {
	case bytes.HasPrefix(data, []byte(`"`)):
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	case bytes.ContainsAny(data[:1], "{[") || string(data) == "null":
		return fmt.Errorf("%s is neither a string, a number nor a boolean", data)
	default:
		text = string(data)
	}
	*v = Value(text)
	return nil
}

// Values are the values of a flag, which may be given more than once. Files may also give a single value.
type Values []Value

// UnmarshalJSON accepts a scalar or a list of them.
func (v *Values) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]Value)(v))
	}
	var value Value
	if err := value.UnmarshalJSON(data); err != nil {
		return err
	}
	*v = Values{value}
	return nil
}

// validate returns what is wrong with settings for the given control planes.
func (s Settings) validate(controlPlanes []string) error {
	for _, name := range slices.Sorted(maps.Keys(s.Parts)) {
		owner, program := path.Split(name)
		if !slices.Contains(programs, program) {
			return fmt.Errorf("unknown part %q; the parts are %s", name, strings.Join(programs, ", "))
		}
		owner = strings.TrimSuffix(owner, "/")
		if owner != "" && owner != FederationControllers && !slices.Contains(controlPlanes, owner) {
			return fmt.Errorf("unknown control plane in part %q; the control planes are %s", name, strings.Join(controlPlanes, ", "))
		}
		for flag := range s.Parts[name].Flags {
			if flag == "" || strings.HasPrefix(flag, "-") || strings.ContainsAny(flag, "= ") {
				return fmt.Errorf("invalid flag %q of part %s; give its name without dashes and its value after the colon", flag, name)
			}
		}
	}
	return nil
}

// customize applies the settings to a process: first those of all, then those of its program, then its own.
func (s Settings) customize(spec process.Spec) process.Spec {
	spec.Env = slices.Concat(spec.Env, environment(s.Env))
	for _, name := range slices.Compact([]string{path.Base(spec.Name), spec.Name}) {
		spec.Args = setFlags(spec.Args, s.Parts[name].Flags)
		spec.Env = slices.Concat(spec.Env, environment(s.Parts[name].Env))
	}
	return spec
}

func environment(variables map[string]Value) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		all = append(all, name+"="+string(variables[name]))
	}
	return all
}

// setFlags replaces flags of the form --name or --name=value, and appends those that are missing.
func setFlags(args []string, flags map[string]Values) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		_, replaced := flags[name]
		return isFlag && replaced
	})
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, value := range flags[name] {
			args = append(args, "--"+name+"="+string(value))
		}
	}
	return args
}

func isFalse(b *bool) bool { return b != nil && !*b }
