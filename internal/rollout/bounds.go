package rollout

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Bounds are the bounds of a rollout over all clusters, in pods.
type Bounds struct {
	// Replicas is the number of replicas in all clusters.
	Replicas int
	// Surge is how many pods there may be above Replicas.
	Surge int
	// Unavailable is how many pods may be missing from Replicas.
	Unavailable int
	// Partition is how many pods keep their revision.
	Partition int
}

// maxPods returns how many pods there may be.
func (b Bounds) maxPods() int { return b.Replicas + b.Surge }

// minAvailable returns how many pods must be available.
func (b Bounds) minAvailable() int { return max(0, b.Replicas-b.Unavailable) }

// maxUpdated returns how many pods may have the new revision.
func (b Bounds) maxUpdated() int { return max(0, b.Replicas-b.Partition) }

// The defaults of the APIs.
var (
	deploymentDefault = intstr.FromString("25%")
	cloneSetDefault   = intstr.FromString("20%")
)

// DeploymentBounds resolves the bounds of a Deployment as its controller does: surge is rounded up, unavailable down. If both
// are zero, one pod may be unavailable. Nil is the default of the API, 25 %.
func DeploymentBounds(replicas int, maxSurge, maxUnavailable *intstr.IntOrString) (Bounds, error) {
	surge, err := resolve("maxSurge", maxSurge, deploymentDefault, replicas, true)
	if err != nil {
		return Bounds{}, err
	}
	unavailable, err := resolve("maxUnavailable", maxUnavailable, deploymentDefault, replicas, false)
	if err != nil {
		return Bounds{}, err
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return Bounds{Replicas: replicas, Surge: surge, Unavailable: min(unavailable, replicas)}, nil
}

// StatefulSetBounds resolves the bounds of a StatefulSet as its controller does: unavailable is rounded down and is at least
// one, which is also the default. The partition is an ordinal; beyond the replicas, it keeps all pods.
func StatefulSetBounds(replicas int, maxUnavailable *intstr.IntOrString, partition int) (Bounds, error) {
	unavailable, err := resolve("maxUnavailable", maxUnavailable, intstr.FromInt32(1), replicas, false)
	if err != nil {
		return Bounds{}, err
	}
	if partition < 0 {
		return Bounds{}, fmt.Errorf("partition is %d; it cannot be negative", partition)
	}
	return Bounds{Replicas: replicas, Unavailable: min(max(unavailable, 1), replicas), Partition: min(partition, replicas)}, nil
}

// CloneSetBounds resolves the bounds of a CloneSet as its controller does: surge is rounded up, and is zero by default. Unavailable is 20 %
// by default, and is rounded up if there is no surge, otherwise down. The partition is rounded up, but a percentage below 100 % updates at
// least one pod. If both bounds are zero the CloneSet would never be updated; then one pod may be unavailable.
func CloneSetBounds(replicas int, maxSurge, maxUnavailable, partition *intstr.IntOrString) (Bounds, error) {
	surge, err := resolve("maxSurge", maxSurge, intstr.FromInt32(0), replicas, true)
	if err != nil {
		return Bounds{}, err
	}
	unavailable, err := resolve("maxUnavailable", maxUnavailable, cloneSetDefault, replicas, surge == 0)
	if err != nil {
		return Bounds{}, err
	}
	kept, err := resolve("partition", partition, intstr.FromInt32(0), replicas, true)
	if err != nil {
		return Bounds{}, err
	}
	if partition != nil && partition.Type == intstr.String && partition.StrVal != "100%" && kept >= replicas && replicas > 0 {
		kept = replicas - 1
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return Bounds{Replicas: replicas, Surge: surge, Unavailable: min(unavailable, replicas), Partition: min(kept, replicas)}, nil
}

func resolve(field string, value *intstr.IntOrString, byDefault intstr.IntOrString, total int, roundUp bool) (int, error) {
	if total < 0 {
		return 0, fmt.Errorf("replicas is %d; it cannot be negative", total)
	}
	if value == nil {
		value = &byDefault
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, roundUp)
	if err != nil {
		return 0, fmt.Errorf("%s is %q; it must be a number or a percentage", field, value.String())
	}
	if n < 0 {
		return 0, fmt.Errorf("%s is %s; it cannot be negative", field, value.String())
	}
	return n, nil
}
