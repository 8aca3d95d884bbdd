package merge

// oneOf lists, by type, fields of which an object may have only one. If the federation sets one, another that the
// member has is removed regardless of its owner, or the API server refuses the object.
var oneOf = map[string][]string{
	"io.k8s.api.core.v1.Probe":                     {"exec", "grpc", "httpGet", "tcpSocket"},
	"io.k8s.api.core.v1.LifecycleHandler":          {"exec", "httpGet", "sleep", "tcpSocket"},
	"io.k8s.api.core.v1.EnvVar":                    {"value", "valueFrom"},
	"io.k8s.api.core.v1.EnvVarSource":              {"configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"},
	"io.k8s.api.core.v1.EnvFromSource":             {"configMapRef", "secretRef"},
	"io.k8s.api.networking.v1.IngressBackend":      {"resource", "service"},
	"io.k8s.api.policy.v1.PodDisruptionBudgetSpec": {"maxUnavailable", "minAvailable"},
}

// rollouts lists the types whose field rollingUpdate is only allowed with the type of that name.
var rollouts = map[string]bool{
	"io.k8s.api.apps.v1.DeploymentStrategy":        true,
	"io.k8s.api.apps.v1.DaemonSetUpdateStrategy":   true,
	"io.k8s.api.apps.v1.StatefulSetUpdateStrategy": true,
}

// ruledOut returns the fields of live that conflict with the desired ones.
func ruledOut(live, desired map[string]any, typeName string) []string {
	switch {
	case len(desired) == 0:
		return nil
	case typeName == "io.k8s.api.core.v1.Volume":
		return otherVolumeSources(live, desired)
	case rollouts[typeName]:
		if kind, given := desired["type"].(string); given && kind != "RollingUpdate" {
			return unwanted(live, desired, "rollingUpdate")
		}
		return nil
	}
	alternatives := oneOf[typeName]
	for _, name := range alternatives {
		if desired[name] != nil {
			return unwanted(live, desired, alternatives...)
		}
	}
	return nil
}

// otherVolumeSources returns the sources of a volume other than the one the federation set, if it set one.
func otherVolumeSources(live, desired map[string]any) []string {
	if len(volumeSources(desired)) == 0 {
		return nil
	}
	return unwanted(live, desired, volumeSources(live)...)
}

// volumeSources returns the source fields of a volume: all but its name.
func volumeSources(volume map[string]any) []string {
	var sources []string
	for name, value := range volume {
		if name != "name" && value != nil {
			sources = append(sources, name)
		}
	}
	return sources
}

// unwanted returns the named fields that live has and desired has not.
func unwanted(live, desired map[string]any, fields ...string) []string {
	var found []string
	for _, name := range fields {
		if live[name] != nil && desired[name] == nil {
			found = append(found, name)
		}
	}
	return found
}
