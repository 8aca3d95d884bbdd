// Package api registers every kind of Cellplane. The kinds themselves live in one package per group and version: the
// groups under karmada.io and multicluster.x-k8s.io speak the wire format their users know, cellplane.io is our own.
//
// Package names holds labels, annotations and derived names; package crds holds the generated
// CustomResourceDefinitions and installs them.
package api

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd paths=./... output:crd:artifacts:config=crds
