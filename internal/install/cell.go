package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/federate"
)

// PlaneLabel names the control plane that an object of the chart is for.
const PlaneLabel = "cellplane.io/control-plane"

// providerService is what the label app.kubernetes.io/managed-by says of objects of cells that are not in the values of a release. Another value than
// that of the release keeps an installation from deleting them.
const providerService = "cellplane-cluster-api"

// Cell is a cell of a release that its values do not list.
type Cell struct {
	// Objects are those that the chart has for it.
	Objects []*unstructured.Unstructured
	// Config is what makes it a cell of the federation: this cell alone, and its certificates.
	Config *federate.Config
	// Secrets are those of its certificates, and Authorities those of them that are certificate authorities, by what they are for.
	Secrets     []string
	Authorities map[string]string
}

// authorities are the ends of names of Secrets with certificate authorities, and what Cluster API calls them.
var authorities = map[string]string{"ca": "ca", "etcd-ca": "etcd", "front-proxy-ca": "proxy", "service-accounts": "sa"}

// RenderCell renders what a release would have for one more cell. values are the fields of its entry in the values of the release; its objects get
// more labels.
func RenderCell(release Release, values map[string]any, labels map[string]string) (*Cell, error) {
	name, _ := values["name"].(string)
	all := map[string]any{"cells": []any{values}}
	for key, value := range release.Values {
		if key != "cells" {
			all[key] = value
		}
	}
	release.Values = all
	rendered, err := render(release, providerService)
	if err != nil {
		return nil, err
	}
	cell := &Cell{Authorities: map[string]string{}}
	for _, object := range rendered.Objects {
		if text, found, _ := unstructured.NestedString(object.Object, "data", federationFile); found {
			if cell.Config, err = federate.ParseConfig([]byte(text)); err != nil {
				return nil, fmt.Errorf("the configuration of the federation: %w", err)
			}
		}
		if object.GetLabels()[PlaneLabel] != name {
			continue
		}
		merged := object.GetLabels()
		maps.Copy(merged, labels)
		object.SetLabels(merged)
		cell.Objects = append(cell.Objects, object)
		if object.GetKind() == "Certificate" {
			secret, _, _ := unstructured.NestedString(object.Object, "spec", "secretName")
			cell.Secrets = append(cell.Secrets, secret)
		}
	}
	if cell.Config == nil || len(cell.Config.Cells) != 1 {
		return nil, errors.New("the chart has no configuration of the federation")
	}
	cell.reduce(strings.TrimSuffix(cell.Config.Cells[0].AdminSecret, "-admin")+"-", labels)
	return cell, nil
}

// federationFile is the key of the configuration of a federation in its ConfigMap.
const federationFile = "federation.yaml"

// reduce leaves of the certificates of a federation those of the cell, whose names begin with prefix.
func (c *Cell) reduce(prefix string, labels map[string]string) {
	config := c.Config
	name := config.Cells[0].Name
	config.Certificates = slices.DeleteFunc(config.Certificates, func(certificate federate.Certificate) bool { return certificate.Plane != name })
	issuers := map[string]bool{}
	for _, certificate := range config.Certificates {
		issuers[certificate.Authority] = true
		c.Secrets = append(c.Secrets, certificate.Secret)
	}
	for end, purpose := range authorities {
		c.Authorities[purpose] = prefix + end
	}
	config.Authorities = slices.DeleteFunc(config.Authorities, func(authority string) bool {
		return !issuers[authority] && authority != c.Authorities["sa"]
	})
	for _, authority := range c.Authorities {
		if len(config.Authorities) > 0 {
			c.Secrets = append(c.Secrets, authority)
		}
	}
	slices.Sort(c.Secrets)
	c.Secrets = slices.Compact(c.Secrets)
	config.Labels = maps.Clone(config.Labels)
	config.Labels[PlaneLabel] = name
	maps.Copy(config.Labels, labels)
}

// Lists reports whether the values of a release list a cell.
func (r Release) Lists(cell string) bool {
	listed, _ := r.Values["cells"].([]any)
	return slices.ContainsFunc(listed, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		return fields["name"] == cell
	})
}

// ApplyCell applies the objects of a cell.
func (c *Cluster) ApplyCell(ctx context.Context, cell *Cell) error {
	for _, object := range cell.Objects {
		if err := c.apply(ctx, object, metav1.PatchOptions{FieldManager: providerService}); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// cellKinds are the kinds of objects of a cell, in the order in which they are deleted: engines first, which write to members, and keys last.
var cellKinds = []schema.GroupVersionKind{
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Version: "v1", Kind: "Service"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
	{Version: "v1", Kind: "ConfigMap"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
}

// DeleteCell deletes the objects of a cell, with its keys and volumes.
func (c *Cluster) DeleteCell(ctx context.Context, release Release, cell string) error {
	selector := labels.Set{nameLabel: "cellplane", instanceLabel: release.Name, PlaneLabel: cell}
	return c.deleteAll(ctx, cellKinds, release.Namespace, selector, func(object *unstructured.Unstructured) bool {
		return object.GetDeletionTimestamp() != nil
	})
}
