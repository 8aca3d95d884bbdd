package quotas

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/gateway/inner"
)

// measure is how objects of a resource are measured that quotas limit by what they use, too.
type measure struct {
	// limits reports whether a quota limits such objects by a name.
	limits func(corev1.ResourceName) bool
	// in returns what the object in an answer uses. The error can be written as it is.
	in func(*inner.Answer) (usage, error)
}

// measures are the resources with a measure.
var measures = map[schema.GroupResource]measure{
	{Resource: "services"}: {
		limits: anyOf(corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers),
		in:     measuredBy(partsOf),
	},
	{Resource: "persistentvolumeclaims"}: {limits: isStorage, in: measuredBy(storageOf)},
}

// isMeasured reports whether a name in a quota limits what objects use.
func isMeasured(name corev1.ResourceName) bool {
	for _, m := range measures {
		if m.limits(name) {
			return true
		}
	}
	return false
}

func measuredBy[T any](of func(*T) usage) func(*inner.Answer) (usage, error) {
	return func(answer *inner.Answer) (usage, error) {
		if err := answer.Err(); err != nil {
			return nil, err
		}
		object := new(T)
		if err := json.Unmarshal(answer.Body(), object); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("decoding an object that a quota limits: %w", err))
		}
		return of(object), nil
	}
}

// partsOf returns how many node ports and load balancers a Service uses, as the quota controller counts them.
func partsOf(service *corev1.Service) usage {
	ports := int64(len(service.Spec.Ports))
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return usage{corev1.ResourceServicesNodePorts: ports}
	case corev1.ServiceTypeLoadBalancer:
		if !ptr.Deref(service.Spec.AllocateLoadBalancerNodePorts, true) {
			ports = 0 // only those that the Service names
			for _, port := range service.Spec.Ports {
				if port.NodePort != 0 {
					ports++
				}
			}
		}
		return usage{corev1.ResourceServicesNodePorts: ports, corev1.ResourceServicesLoadBalancers: 1}
	default:
		return nil
	}
}

// ofClass is what follows the name of a storage class in the names that limit its claims.
const ofClass = ".storageclass.storage.k8s.io/"

// isStorage reports whether a name in a quota limits claims by their storage, or by their class.
func isStorage(name corev1.ResourceName) bool {
	return name == corev1.ResourceRequestsStorage || strings.HasSuffix(string(name), ofClass+string(corev1.ResourceRequestsStorage)) ||
		strings.HasSuffix(string(name), ofClass+string(corev1.ResourcePersistentVolumeClaims))
}

// storageOf returns what a claim requests, as the quota controller counts it: at least what it was given.
func storageOf(claim *corev1.PersistentVolumeClaim) usage {
	requested, given := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.AllocatedResources[corev1.ResourceStorage]
	bytes := max(requested.Value(), given.Value())
	u := usage{corev1.ResourceRequestsStorage: bytes}
	if class := cmp.Or(claim.Annotations[corev1.BetaStorageClassAnnotation], ptr.Deref(claim.Spec.StorageClassName, "")); class != "" {
		u[corev1.ResourceName(class+ofClass+string(corev1.ResourceRequestsStorage))] = bytes
		u[corev1.ResourceName(class+ofClass+string(corev1.ResourcePersistentVolumeClaims))] = 1
	}
	return u
}

// quantity returns an amount of what a quota limits by a name.
func quantity(name corev1.ResourceName, n int64) resource.Quantity {
	if strings.HasSuffix(string(name), string(corev1.ResourceRequestsStorage)) {
		return *resource.NewQuantity(n, resource.BinarySI)
	}
	return *resource.NewQuantity(n, resource.DecimalSI)
}
