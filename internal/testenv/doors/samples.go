package doors

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const podTemplate = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// samples are the contents of an object of each resource, as resource.group. An empty one needs none.
var samples = map[string]string{
	"configmaps.":                                   `{}`,
	"endpoints.":                                    `{}`,
	"limitranges.":                                  `{}`,
	"persistentvolumeclaims.":                       `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"pods.":                                         `{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	"podtemplates.":                                 `{"template":` + podTemplate + `}`,
	"replicationcontrollers.":                       `{"spec":{"replicas":10,"selector":{"app":"x"},"template":` + podTemplate + `}}`,
	"secrets.":                                      `{}`,
	"services.":                                     `{"spec":{"ports":[{"port":80}]}}`,
	"daemonsets.apps":                               `{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"deployments.apps":                              `{"spec":{"replicas":10,"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"replicasets.apps":                              `{"spec":{"replicas":10,"selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"statefulsets.apps":                             `{"spec":{"replicas":10,"serviceName":"x","selector":{"matchLabels":{"app":"x"}},"template":` + podTemplate + `}}`,
	"horizontalpodautoscalers.autoscaling":          `{"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`,
	"cronjobs.batch":                                `{"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
	"jobs.batch":                                    `{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
	"leases.coordination.k8s.io":                    `{}`,
	"ingresses.networking.k8s.io":                   `{"spec":{"defaultBackend":{"service":{"name":"x","port":{"number":80}}}}}`,
	"networkpolicies.networking.k8s.io":             `{"spec":{"podSelector":{}}}`,
	"poddisruptionbudgets.policy":                   `{"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"none"}}}}`,
	"roles.rbac.authorization.k8s.io":               `{}`,
	"serviceaccounts.":                              `{}`,
	"controllerrevisions.apps":                      `{"revision":1,"data":{}}`,
	"endpointslices.discovery.k8s.io":               `{"addressType":"IPv4","endpoints":[]}`,
	"rolebindings.rbac.authorization.k8s.io":        `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`,
	"resourceclaims.resource.k8s.io":                `{"spec":{}}`,
	"resourceclaimtemplates.resource.k8s.io":        `{"spec":{"spec":{}}}`,
	"propagationpolicies.policy.karmada.io":         `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"none"}],"placement":{}}}`,
	"overridepolicies.policy.karmada.io":            `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"none"}],"overrideRules":[{"overriders":{}}]}}`,
	"federatedresourcequotas.policy.karmada.io":     `{"spec":{"overall":{"example.io/none":"1"}}}`,
	"cronfederatedhpas.autoscaling.karmada.io":      `{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"},"rules":[{"name":"x","schedule":"@yearly","targetReplicas":1}]}}`,
	"federatedhpas.autoscaling.karmada.io":          `{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"},"maxReplicas":3}}`,
	"multiclusteringresses.networking.karmada.io":   `{"spec":{"defaultBackend":{"service":{"name":"none","port":{"number":80}}}}}`,
	"multiclusterservices.networking.karmada.io":    `{"spec":{"types":["CrossCluster"]}}`,
	"serviceimports.multicluster.x-k8s.io":          `{"spec":{"type":"ClusterSetIP","ports":[{"port":80}]}}`,
	"serviceexports.multicluster.x-k8s.io":          `{}`,
	"clusterroles.rbac.authorization.k8s.io":        `{}`,
	"clusterrolebindings.rbac.authorization.k8s.io": `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`,
	"persistentvolumes.":                            `{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/none"}}}`,
	"priorityclasses.scheduling.k8s.io":             `{"value":1}`,
	"storageclasses.storage.k8s.io":                 `{"provisioner":"example.io/none"}`,
	"ingressclasses.networking.k8s.io":              `{"spec":{"controller":"example.io/none"}}`,
	"clusterpropagationpolicies.policy.karmada.io":  `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"Namespace","name":"none"}],"placement":{}}}`,
	"clusteroverridepolicies.policy.karmada.io":     `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"Namespace","name":"none"}],"overrideRules":[{"overriders":{}}]}}`,
	"rolloutpolicies.cellplane.io":                  `{"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment","name":"none"}]}}`,
	"clusterrolloutpolicies.cellplane.io":           `{"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment","name":"none"}]}}`,
	"resourcequotas.":                               `{"spec":{"hard":{"requests.cpu":"100000"}}}`,
	"widgets.guards.example.io":                     `{"spec":{"replicas":10},"status":{"replicas":10}}`,
}

// The reasons why there is no sample of a kind.
const (
	byContents     = "it is tested by what it contains"
	configuration  = "it configures the control plane, is not propagated, and is served as those of its scope that have a sample"
	derived        = "the control plane makes it, and makes it again"
	infrastructure = "nodes and drivers of a cluster report it"
)

// unsampled are the resources that have no sample, with the reason.
var unsampled = map[string]string{
	"namespaces.": byContents,
	"customresourcedefinitions.apiextensions.k8s.io":                 byContents,
	"admissionparameters.cellplane.io":                               configuration,
	"apiservices.apiregistration.k8s.io":                             configuration,
	"cells.cellplane.io":                                             configuration,
	"celltopologies.cellplane.io":                                    configuration,
	"certificatesigningrequests.certificates.k8s.io":                 configuration,
	"clusterprofiles.cellplane.io":                                   configuration,
	"clusters.cluster.karmada.io":                                    configuration,
	"clustertaintpolicies.policy.karmada.io":                         configuration,
	"flowschemas.flowcontrol.apiserver.k8s.io":                       configuration,
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io":       configuration,
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         configuration,
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   configuration,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     configuration,
	"validatingadmissionpolicies.admissionregistration.k8s.io":       configuration,
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": configuration,
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   configuration,
	"protectionpolicies.cellplane.io":                                configuration,
	"remedies.remedy.karmada.io":                                     configuration,
	"resourceinterpretercustomizations.config.karmada.io":            configuration,
	"resourceinterpreterwebhookconfigurations.config.karmada.io":     configuration,
	"resourceregistries.search.karmada.io":                           configuration,
	"runtimeclasses.node.k8s.io":                                     configuration,
	"schedulingprofiles.cellplane.io":                                configuration,
	"servedapis.cellplane.io":                                        configuration,
	"servicecidrs.networking.k8s.io":                                 configuration,
	"deviceclasses.resource.k8s.io":                                  configuration,
	"volumeattributesclasses.storage.k8s.io":                         configuration,
	"workloadgroups.cellplane.io":                                    configuration,
	"workloadrebalancers.apps.karmada.io":                            configuration,
	"clusterledgers.cellplane.io":                                    derived,
	"clusterresourcebindings.work.karmada.io":                        derived,
	"events.":                             derived,
	"events.events.k8s.io":                derived,
	"ipaddresses.networking.k8s.io":       derived,
	"resourcebindings.work.karmada.io":    derived,
	"works.work.karmada.io":               derived,
	"csidrivers.storage.k8s.io":           infrastructure,
	"csinodes.storage.k8s.io":             infrastructure,
	"csistoragecapacities.storage.k8s.io": infrastructure,
	"nodes.":                              infrastructure,
	"resourceslices.resource.k8s.io":      infrastructure,
	"volumeattachments.storage.k8s.io":    infrastructure,
}

// testGroups is the end of the groups of kinds that tests define. Widgets stand for them.
const testGroups = "example.io"

// isSampled reports whether there is a sample of a kind, or a reason why there is none.
func (k Kind) isSampled() bool {
	resource := k.Resource + "." + k.Group
	return samples[resource] != "" || unsampled[resource] != "" || strings.HasSuffix(k.Group, testGroups) || !k.Can("create") || !k.Can("delete")
}

// Sample returns a new object of a kind with the Label; false if there is a reason that there is none.
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
