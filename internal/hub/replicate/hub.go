package replicate

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/api/names"
)

// hub is the cache of the hub. All cells share it.
type hub struct {
	kinds   []*hubKind
	numbers map[schema.GroupVersionResource]int
}

// hubKind is the objects of one kind on the hub.
type hubKind struct {
	rule     *Rule
	client   dynamic.NamespaceableResourceInterface
	informer cache.SharedIndexInformer
}

const (
	// byRecipient finds the secrets that were issued to a cell, by cluster and cell.
	byRecipient = "recipient"
	// bySecret finds clusters by the secret they refer to.
	bySecret = "secret"
)

func newHub(client dynamic.Interface, rules []*Rule) (*hub, error) {
	h := &hub{numbers: map[schema.GroupVersionResource]int{}}
	for i, rule := range rules {
		indexers := cache.Indexers{}
		switch {
		case rule.Resource == secrets:
			indexers[byRecipient] = recipientIndex
		case rule.Resource == clusters:
			indexers[bySecret] = secretIndex
		}
		if rule.Namespaced {
			indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
		}
		informer, err := newInformer(client, rule, indexers, func(object *unstructured.Unstructured) (any, error) { return newSource(rule, object) })
		if err != nil {
			return nil, err
		}
		h.kinds = append(h.kinds, &hubKind{rule: rule, client: client.Resource(rule.Resource), informer: informer})
		h.numbers[rule.Resource] = i
	}
	return h, nil
}

// run watches the hub until ctx ends.
func (h *hub) run(ctx context.Context) {
	for _, kind := range h.kinds {
		go kind.informer.RunWithContext(ctx)
	}
	<-ctx.Done()
}

func (h *hub) kind(resource schema.GroupVersionResource) *hubKind { return h.kinds[h.number(resource)] }

func (h *hub) number(resource schema.GroupVersionResource) int { return h.numbers[resource] }

func (k *hubKind) get(namespace, name string) *Source {
	return lookup[*Source](k.informer, namespace, name)
}

// inNamespace returns the objects in a namespace.
func (k *hubKind) inNamespace(namespace string) []*Source {
	return found[*Source](k.informer, cache.NamespaceIndex, namespace)
}

// referring returns the clusters that refer to a secret.
func (h *hub) referring(secret *Source) []*Source {
	return found[*Source](h.kind(clusters).informer, bySecret, secret.Namespace+"/"+secret.Name)
}

// hasOwnSecret reports whether a cell has credentials of its own for a cluster.
func (h *hub) hasOwnSecret(cluster, cell string) bool {
	return len(found[*Source](h.kind(secrets).informer, byRecipient, cluster+"/"+cell)) > 0
}

func recipientIndex(object any) ([]string, error) {
	labels := object.(*Source).Labels
	if labels[names.CellLabel] == "" {
		return nil, nil
	}
	return []string{labels[names.ClusterLabel] + "/" + labels[names.CellLabel]}, nil
}

func secretIndex(object any) ([]string, error) {
	namespace, name, ok := secretRef(object.(*Source))
	if !ok {
		return nil, nil
	}
	return []string{namespace + "/" + name}, nil
}

// lookup returns an object from the cache of an informer, or nil.
func lookup[T any](informer cache.SharedIndexInformer, namespace, name string) (none T) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	object, exists, err := informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return none // the stores of informers return no errors for keys
	}
	return object.(T)
}

// found returns objects from an index that the informer has.
func found[T any](informer cache.SharedIndexInformer, index, value string) []T {
	objects, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // the error says that there is no such index
	}
	all := make([]T, len(objects))
	for i, object := range objects {
		all[i] = object.(T)
	}
	return all
}

// newInformer returns an informer that caches the results of reduce.
func newInformer(client dynamic.Interface, rule *Rule, indexers cache.Indexers, reduce func(*unstructured.Unstructured) (any, error)) (cache.SharedIndexInformer, error) {
	resource := client.Resource(rule.Resource).Namespace(rule.Only)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), &unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{Indexers: indexers, ObjectDescription: rule.Resource.String()})
	err := informer.SetTransform(func(object any) (any, error) {
		full, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil // it is reduced already
		}
		return reduce(full)
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch %s: %w", rule.Resource.Resource, err)
	}
	return informer, nil
}
