// Package api registers all kinds of Cellplane. There is one package per group and version. The groups under
// karmada.io and multicluster.x-k8s.io keep the wire format of those projects; cellplane.io is Cellplane's own.
//
// Package controlplane holds the kinds of the provider for Cluster API. They are not kinds of a federation: the chart installs them where it runs.
//
// Package names holds labels, annotations and derived names; package crds holds the CustomResourceDefinitions.
package api

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd paths=./apps/...;./autoscaling/...;./cellplane/...;./cluster/...;./config/...;./metrics/...;./multicluster/...;./networking/...;./policy/...;./remedy/...;./search/...;./work/... output:crd:artifacts:config=crds
//go:generate go tool -modfile=../tools/go.mod controller-gen crd paths=./controlplane/... output:crd:artifacts:config=../deploy/charts/cellplane/cluster-api
//go:generate go run ./crds/adjust crds
