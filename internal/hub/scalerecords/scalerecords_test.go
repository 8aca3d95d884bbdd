package scalerecords

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

func record(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}, Data: data}
}

func TestExpired(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339) }
	drop := func(ago time.Duration) string { return `[{"time":"` + at(ago) + `","from":3,"to":2}]` }
	for name, test := range map[string]struct {
		record *corev1.ConfigMap
		want   bool
	}{
		"ended":                   {record("scale-down-a", map[string]string{"expires": at(2 * time.Hour), "drops": drop(3 * time.Hour)}), true},
		"just ended":              {record("scale-down-a", map[string]string{"expires": at(time.Minute), "drops": drop(time.Hour)}), false},
		"in force":                {record("scale-down-a", map[string]string{"expires": at(-time.Hour), "drops": drop(time.Hour)}), false},
		"older version, recent":   {record("scale-down-a", map[string]string{"drops": drop(24 * time.Hour)}), false},
		"older version, long ago": {record("scale-down-a", map[string]string{"drops": drop(60 * 24 * time.Hour)}), true},
		"not understood":          {record("scale-down-a", map[string]string{"drops": "?"}), false},
		"end not understood":      {record("scale-down-a", map[string]string{"expires": "?", "drops": drop(60 * 24 * time.Hour)}), false},
		"no record":               {record("settings", map[string]string{"expires": at(2 * time.Hour)}), false},
	} {
		if got := expired(test.record, now); got != test.want {
			t.Errorf("%s: expired is %v, want %v", name, got, test.want)
		}
	}
}

// TestSweep removes an expired record, and keeps one that is changed meanwhile.
func TestSweep(t *testing.T) {
	plane, err := client.NewWithWatch(testenv.SharedAPIServer(t).RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = plane.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	past := map[string]string{names.ScaleDownRecordExpires: "2001-01-01T00:00:00Z"}
	for _, object := range []*corev1.ConfigMap{record("scale-down-old", past), record("scale-down-busy", past), record("scale-down-new", map[string]string{names.ScaleDownRecordExpires: "2999-01-01T00:00:00Z"})} {
		if err := plane.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = plane.Delete(context.Background(), object) })
	}
	busy := interceptor.NewClient(plane, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		if object.GetName() == "scale-down-busy" {
			if err := c.Update(ctx, record("scale-down-busy", map[string]string{names.ScaleDownRecordExpires: "2999-01-01T00:00:00Z"})); err != nil {
				return err
			}
		}
		return c.Delete(ctx, object, options...)
	}})
	if err := Sweep(t.Context(), busy, time.Now()); err != nil {
		t.Fatal(err)
	}
	var list corev1.ConfigMapList
	if err := plane.List(t.Context(), &list, client.InNamespace(names.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	var left []string
	for i := range list.Items {
		if name := list.Items[i].Name; len(name) > len(names.ScaleDownRecordPrefix) && name[:len(names.ScaleDownRecordPrefix)] == names.ScaleDownRecordPrefix {
			left = append(left, name)
		}
	}
	if want := []string{"scale-down-busy", "scale-down-new"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
