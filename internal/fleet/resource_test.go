package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/internal/testenv"
)

// bares is a sink that counts the calls for each object.
type bares struct {
	mu   sync.Mutex
	seen map[string]int
}

func (b *bares) Set(obj runtime.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bare := obj.(*Bare)
	full, err := bare.Full()
	if err != nil || len(bare.GetManagedFields()) > 0 || len(full.GetManagedFields()) == 0 {
		panic(fmt.Sprintf("%s has %d managed fields, and in full %d: %v", bare.GetName(), len(bare.GetManagedFields()), len(full.GetManagedFields()), err))
	}
	b.seen[bare.GetKind()+" "+bare.GetName()]++
}

func (b *bares) Unset(obj runtime.Object) { b.Set(obj) }

func (b *bares) Relist() func(string) { return func(string) {} }

func (b *bares) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[what]
}

// A list contains known objects too, or they would count as deleted; a watch skips them.
func TestResourceSource(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	client := server.Client(t)
	maps := client.CoreV1().ConfigMaps(server.Namespace(t))
	create := func(name string) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"sourced": "yes"}}}
		if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("known-1")

	known := func(_, name, _ string) bool { return name == "known-1" || name == "known-2" }
	source := ResourceSource(client.CoreV1().RESTClient(), corev1.SchemeGroupVersion.WithResource("configmaps"), DecodeBare, known)
	sink := &bares{seen: map[string]int{}}
	go Watch(t.Context(), source.Labelled("sourced=yes"), sink, nil)
	testenv.Eventually(t, "the known object is listed", func(context.Context) (bool, error) { return sink.count("ConfigMap known-1") == 1, nil })
	create("known-2")
	create("unknown")
	testenv.Eventually(t, "the unknown object is seen", func(context.Context) (bool, error) { return sink.count("ConfigMap unknown") == 1, nil })
	if n := sink.count("ConfigMap known-2"); n != 0 {
		t.Errorf("a known object was delivered %d times", n)
	}
}
