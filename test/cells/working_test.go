package cells

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// creators is how many users create objects at once.
const creators = 8

// testFailoverOfAWorkingCell fails a cell over that works, while users write to it: nothing that was acknowledged may be missing.
func (w *world) testFailoverOfAWorkingCell(t *testing.T) {
	const cell = "cell-b"
	created := w.startCreating()
	w.runChange("cells", "failover", cell)
	w.waitGatewayTopology()
	acknowledged := created()
	list, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "created=meanwhile"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		found[list.Items[i].Name] = true
	}
	missing := 0
	for _, name := range acknowledged {
		if !found[name] {
			missing++
			t.Errorf("%s was acknowledged and is missing", name)
		}
	}
	t.Logf("%d creations were acknowledged, %d of them are missing", len(acknowledged), missing)
	w.waitRelisted()
	w.runChange("cells", "rejoin", cell)
}

// startCreating has users create objects until the returned function is called, which returns the names of those that were acknowledged.
func (w *world) startCreating() (stop func() []string) {
	var mu sync.Mutex
	var acknowledged []string
	ctx, cancel := context.WithCancel(w.Context())
	var group sync.WaitGroup
	for user := range creators {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("created-%d-%d", user, i)
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"created": "meanwhile"}}}
				_, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(context.WithoutCancel(ctx), object, metav1.CreateOptions{})
				switch {
				case err == nil:
					mu.Lock()
					acknowledged = append(acknowledged, name)
					mu.Unlock()
				case !isUnavailable(err) && !apierrors.IsAlreadyExists(err): // client-go repeats what was not answered
					w.report("creating %s: %v", name, err)
				}
			}
		})
	}
	return func() []string {
		cancel()
		group.Wait()
		return acknowledged
	}
}
