package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// checkVersions compares the versions of all API servers with that of the hub.
func (d *Doctor) checkVersions(context.Context) ([]Finding, error) {
	versions := map[string]*version.Version{}
	for _, p := range d.planes {
		client, err := discovery.NewDiscoveryClientForConfig(p.config)
		if err != nil {
			return nil, err
		}
		info, err := client.ServerVersion()
		if err != nil {
			return nil, fmt.Errorf("reading the version of %s: %w", p.name, err)
		}
		if versions[p.name], err = version.ParseGeneric(info.GitVersion); err != nil {
			return nil, fmt.Errorf("reading the version of %s: %w", p.name, err)
		}
	}
	return skew(versions), nil
}

func skew(versions map[string]*version.Version) []Finding {
	var findings []Finding
	newest := versions["hub"]
	for _, v := range versions {
		if newest.LessThan(v) {
			newest = v
		}
	}
	for name, v := range versions {
		behind := int(newest.Minor()) - int(v.Minor())
		if newest.Major() == v.Major() && behind == 0 {
			continue
		}
		severity := Warning
		if newest.Major() != v.Major() || behind > 1 {
			severity = Error
		}
		findings = append(findings, find(VersionSkew, severity, "API server of "+name, fmt.Sprintf("it has version %s, another has %s", v, newest)))
	}
	return findings
}
