package protection

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// binds reports whether a request assigns a pod to a node. API servers copy the labels of a Binding to the pod, over those that it has.
func binds(info *request.RequestInfo) bool {
	return info.Verb == "create" && info.APIGroup == "" && (info.Resource == "pods" && info.Subresource == "binding" || info.Resource == "bindings" && info.Subresource == "")
}

// guardBinding checks the labels that a Binding gives to a pod, and returns the pod if policies are concerned.
func (g *Guard) guardBinding(c *change) (*object, error) {
	c.unpin()
	defaults := corev1.SchemeGroupVersion.WithKind("Binding")
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.body, &defaults, &corev1.Binding{})
	binding, ok := decoded.(*corev1.Binding)
	if err != nil || !ok {
		return nil, apierrors.NewBadRequest("the pod may be protected, and the Binding cannot be read")
	}
	if len(binding.Labels) == 0 || binding.Name == "" {
		return nil, nil
	}
	pod := *c.info
	pod.Resource, pod.Subresource, pod.Name = "pods", "", binding.Name
	before, err := g.read(c.Context(), &pod)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return nil, c.pin(nil)
	}
	concerned, err := g.concernedBy(c.Context(), &pod, before)
	if err != nil {
		return nil, err
	}
	if len(concerned.selecting) == 0 {
		return g.pinUnconcerned(c, before), nil
	}
	after := *before
	after.Metadata.Labels = maps.Clone(before.Metadata.Labels)
	if after.Metadata.Labels == nil {
		after.Metadata.Labels = map[string]string{}
	}
	maps.Copy(after.Metadata.Labels, binding.Labels)
	if err := g.guardSelection(c, before, &after, concerned.selecting); err != nil {
		return nil, err
	}
	return before, g.pinRehearsed(c, &pod, before)
}
