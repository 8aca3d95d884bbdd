package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/skew"
)

// checkVersions compares the versions of all API servers, and the levels of their CustomResourceDefinitions with those of the hub and of this program.
func (d *Doctor) checkVersions(ctx context.Context) ([]Finding, error) {
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
	levels, err := d.apiLevels(ctx)
	return append(differing(versions), levels...), err
}

// apiLevels tells of control planes that do not go with this program, and of cells that have not the level of the hub.
func (d *Doctor) apiLevels(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	found := map[string]int{}
	for _, p := range d.planes {
		read, err := skew.Reader(p.config)
		if err != nil {
			return nil, err
		}
		annotations, err := read(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the level of %s: %w", p.name, err)
		}
		if err := crds.Judge(annotations); err != nil {
			findings = append(findings, find(VersionSkew, Error, "API of "+p.name, err.Error()))
		}
		if found[p.name], err = crds.LevelOf(annotations); err != nil {
			return findings, err
		}
	}
	for name, level := range found {
		if level != found["hub"] {
			findings = append(findings, find(VersionSkew, Warning, "API of "+name, fmt.Sprintf("its CustomResourceDefinitions are of level %d, those of the hub of level %d", level, found["hub"])))
		}
	}
	return findings, nil
}

func differing(versions map[string]*version.Version) []Finding {
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
