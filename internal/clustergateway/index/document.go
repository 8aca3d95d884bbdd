package index

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/generic"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

// Name returns the name of the index of a kind, which is that of Karmada.
func Name(kind schema.GroupVersionKind) string { return "kubernetes-" + strings.ToLower(kind.Kind) }

// document is a document of Karmada, and where it comes from. Data of Secrets and ConfigMaps is no part of it.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	// Spec and Status are JSON, as strings.
	Spec      string `json:"spec"`
	Status    string `json:"status"`
	Cellplane Source `json:"cellplane"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	CreationTimestamp string            `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
}

// identity returns the operation that deletes the document of an object.
func identity(o *clustercache.Object) (*Operation, error) {
	var parsed wire.Object
	if err := parsed.Parse(o.Raw); err != nil {
		return nil, fmt.Errorf("reading an object of cluster %s: %w", o.Cluster, err)
	}
	if len(parsed.UID) == 0 {
		return nil, fmt.Errorf("%s of cluster %s has no UID", o.Name, o.Cluster)
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	version, err := strconv.ParseInt(o.MemberVersion, 10, 64)
	if err != nil || version < 0 {
		version = 0
	}
	return &Operation{ID: string(parsed.UID), Version: version, Cluster: o.Cluster, Name: name}, nil
}

// encode returns the document of an object.
func encode(kind schema.GroupVersionKind, o *clustercache.Object) ([]byte, error) {
	object, err := decode(kind, o.Raw)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	whole, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding a %s: %w", kind.Kind, err)
	}
	var parts struct{ Spec, Status json.RawMessage }
	if err := json.Unmarshal(whole, &parts); err != nil {
		return nil, fmt.Errorf("encoding a %s: %w", kind.Kind, err)
	}
	annotations := maps.Clone(accessor.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == names.MemberVersionAnnotation || key == names.StaleSinceAnnotation || key == corev1.LastAppliedConfigAnnotation
	})
	version := kind.GroupVersion().String()
	return json.Marshal(document{
		APIVersion: version, Kind: kind.Kind,
		Metadata: metadata{
			Name: accessor.GetName(), Namespace: accessor.GetNamespace(), CreationTimestamp: accessor.GetCreationTimestamp().UTC().Format(time.RFC3339),
			Labels: accessor.GetLabels(), Annotations: annotations, DeletionTimestamp: accessor.GetDeletionTimestamp(),
		},
		Spec: text(parts.Spec), Status: text(parts.Status),
		Cellplane: Source{Cluster: o.Cluster, APIVersion: version},
	})
}

func text(part json.RawMessage) string {
	if part == nil {
		return "null"
	}
	return string(part)
}

func decode(kind schema.GroupVersionKind, raw []byte) (runtime.Object, error) {
	if generic.Needed(kind) {
		return generic.Decode(raw, kind)
	}
	object, err := clientscheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	message, ok := object.(interface{ Unmarshal(data []byte) error })
	if !ok {
		return nil, fmt.Errorf("%s cannot be decoded", kind.Kind)
	}
	if err := message.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decoding a %s: %w", kind.Kind, err)
	}
	return object, nil
}
