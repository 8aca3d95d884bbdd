package schedule

import workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"

// placesSets reports whether the template has several components, which must be placed together.
func placesSets(spec *workv1alpha2.ResourceBindingSpec) bool {
	return len(spec.Components) > 1 || len(spec.Components) == 1 && spec.Replicas <= 0
}

// components returns the share of a cluster in a template that is not divided: all components.
func components(spec *workv1alpha2.ResourceBindingSpec) []workv1alpha2.TargetComponent {
	targets := make([]workv1alpha2.TargetComponent, len(spec.Components))
	for i := range spec.Components {
		targets[i] = workv1alpha2.TargetComponent{Name: spec.Components[i].Name, Replicas: spec.Components[i].Replicas}
	}
	return targets
}

// oneCluster reports whether all components go to a single cluster: because of the spread constraints, or because
// the placement divides replicas and a set cannot be divided.
func (c *cycle) oneCluster() bool {
	return c.isSet && (c.strategy != duplicated || c.spread.cluster.least == 1 && c.spread.cluster.most == 1)
}

// selectForSet returns the best cluster with capacity for all components.
func (c *cycle) selectForSet(eligible []*candidate) ([]*candidate, *Failure) {
	for i := range c.spread.fields {
		if c.spread.fields[i].least > 1 {
			return nil, unschedulable("spreadConstraints require %d %s, but the components of the workload stay together in one cluster", c.spread.fields[i].least, c.spread.fields[i].what)
		}
	}
	if c.spread.cluster.least > 1 {
		return nil, unschedulable("spreadConstraints require %d clusters, but the components of the workload stay together in one", c.spread.cluster.least)
	}
	c.estimate(eligible)
	rank(eligible)
	for _, at := range eligible {
		if at.held || at.available > 0 {
			return []*candidate{at}, nil
		}
	}
	return nil, unschedulable("none of %d clusters has capacity for all components of the workload", len(eligible))
}
