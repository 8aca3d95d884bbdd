package doors

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const podTemplate = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// samples are the contents of an object of each resource, as resource.group. An empty one needs none.
var samples = map[string]string{
	"configmaps.":                          `{}`,
	"endpoints.":                           `{}`,
	"limitranges.":                         `{}`,
	"persistentvolumeclaims.":              `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"pods.":                                `{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	"podtemplates.":                        `{"template":` + podTemplate + `}`,
	"replicationcontrollers.":              `{"spec":{"replicas":10,"selector":{"app":"x"},"template":` + podTemplate + `}}`,
	"secrets.":                             `{}`,
	"services.":                            `{"spec":{"ports":[{"port":80}]}}`,
	"daemonsets.apps":                      `{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"deployments.apps":                     `{"spec":{"replicas":10,"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"replicasets.apps":                     `{"spec":{"replicas":10,"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"statefulsets.apps":                    `{"spec":{"replicas":10,"serviceName":"x","selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"horizontalpodautoscalers.autoscaling": `{"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`,
	"cronjobs.batch":                       `{"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
	"jobs.batch":                           `{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
	"leases.coordination.k8s.io":           `{}`,
	"ingresses.networking.k8s.io":          `{"spec":{"defaultBackend":{"service":{"name":"x","port":{"number":80}}}}}`,
	"networkpolicies.networking.k8s.io":    `{"spec":{"podSelector":{}}}`,
	"poddisruptionbudgets.policy":          `{"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"none"}}}}`,
	"roles.rbac.authorization.k8s.io":      `{}`,
	"serviceaccounts.":                     `{}`,
	"resourcequotas.":                      `{"spec":{"hard":{"requests.cpu":"100000"}}}`,
	"widgets.guards.example.io":            `{"spec":{"replicas":10},"status":{"replicas":10}}`,
}

// Sample returns a new object of a kind with the Label; false if there is no sample of it.
func (k Kind) Sample(namespace, name string) (*unstructured.Unstructured, bool, error) {
	content, found := samples[k.Resource+"."+k.Group]
	if !found || !k.Can("create") || !k.Can("delete") {
		return nil, false, nil
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(content), &object.Object); err != nil {
		return nil, false, fmt.Errorf("the sample of %s: %w", k.Resource, err)
	}
	object.SetAPIVersion(k.GroupVersion().String())
	object.SetKind(k.Kind)
	object.SetName(name)
	if k.Namespaced {
		object.SetNamespace(namespace)
	}
	object.SetLabels(map[string]string{Label: name})
	return object, true, nil
}
