package admission

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// FieldManager owns the fields of installed policies.
const FieldManager = "cellplane-admission"

// PartLabel marks the objects that this package installs, so that those of older versions can be removed.
const PartLabel = "cellplane.io/admission"

// Options are set by an administrator. The zero value is the safe one.
type Options struct {
	// AllowNoExecuteTaintPolicy permits ClusterTaintPolicies with NoExecute taints.
	AllowNoExecuteTaintPolicy bool
}

// Install updates the rules on the hub, removes those of older versions and returns when the API server applies
// them. Their kinds must be served. It can be repeated.
func Install(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // some dozen requests, once
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing to install admission policies: %w", err)
	}
	wanted, err := load(options)
	if err != nil {
		return fmt.Errorf("reading admission policies: %w", err)
	}
	if err := apply(ctx, client, wanted); err != nil {
		return err
	}
	if err := prune(ctx, client, wanted); err != nil {
		return err
	}
	return waitUntilApplied(ctx, client, options)
}

func apply(ctx context.Context, client dynamic.Interface, wanted []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range wanted {
		group.Go(func() error {
			body, err := json.Marshal(object)
			if err != nil {
				return err
			}
			_, err = client.Resource(resources[object.GetKind()]).Patch(ctx, object.GetName(), types.ApplyPatchType, body,
				metav1.PatchOptions{FieldManager: FieldManager, Force: ptr.To(true)})
			if err != nil {
				return fmt.Errorf("installing %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// prune removes obsolete objects with our label, bindings before their policies so that no binding dangles.
func prune(ctx context.Context, client dynamic.Interface, wanted []*unstructured.Unstructured) error {
	keep := sets.New[string]()
	for _, object := range wanted {
		keep.Insert(object.GetKind() + "/" + object.GetName())
	}
	for _, kind := range []string{mutatingBinding, mutatingPolicy, validatingBinding, validatingPolicy} {
		present, err := client.Resource(resources[kind]).List(ctx, metav1.ListOptions{LabelSelector: PartLabel})
		if err != nil {
			return fmt.Errorf("looking for a former %s: %w", kind, err)
		}
		for i := range present.Items {
			name := present.Items[i].GetName()
			if keep.Has(kind + "/" + name) {
				continue
			}
			if err := client.Resource(resources[kind]).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("removing the former %s %s: %w", kind, name, err)
			}
		}
	}
	return nil
}

const (
	mutatingPolicy    = "MutatingAdmissionPolicy"
	mutatingBinding   = "MutatingAdmissionPolicyBinding"
	validatingPolicy  = "ValidatingAdmissionPolicy"
	validatingBinding = "ValidatingAdmissionPolicyBinding"
)

var resources = map[string]schema.GroupVersionResource{
	mutatingPolicy:    {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	mutatingBinding:   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
	validatingPolicy:  {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	validatingBinding: {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
}

//go:embed policies/*.yaml
var files embed.FS

const noExecuteFile = "policies/no-execute-taints.yaml"

// load reads the embedded files for the options.
func load(options Options) ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(files, "policies/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, path := range paths {
		if path == noExecuteFile && options.AllowNoExecuteTaintPolicy {
			continue
		}
		objects, err := loadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func loadFile(path string) ([]*unstructured.Unstructured, error) {
	content, err := files.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if _, known := resources[object.GetKind()]; !known {
			return nil, fmt.Errorf("kind %q has no place here", object.GetKind())
		}
		object.SetLabels(map[string]string{PartLabel: "true"})
		objects = append(objects, object)
	}
}
