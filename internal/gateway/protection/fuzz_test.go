package protection

import (
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// FuzzPinnedOptions checks that a deletion with any query deletes only the judged version.
func FuzzPinnedOptions(f *testing.F) {
	for _, query := range []string{"", "propagationPolicy=Background", "gracePeriodSeconds=x", "preconditions.resourceVersion=1"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, rawQuery string) {
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return
		}
		pinned, err := pinnedOptions(objbytes.Pin{UID: "some-uid", ResourceVersion: "4711"}, query)
		if err != nil {
			if rawQuery == "" || rawQuery == "propagationPolicy=Background" {
				t.Fatalf("%q: %v", rawQuery, err)
			}
			return // the request is refused
		}
		var options metav1.DeleteOptions
		if err := utiljson.Unmarshal(pinned, &options); err != nil {
			t.Fatalf("invalid options %q: %v", pinned, err)
		}
		if options.Preconditions == nil || options.Preconditions.ResourceVersion == nil || *options.Preconditions.ResourceVersion != "4711" {
			t.Errorf("%q became %q, which deletes any version", rawQuery, pinned)
		}
	})
}

// FuzzObject checks that any input can be decoded and judged without a panic.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}},"Metadata":{"labels":{}},"spec":{"replicas":"x"}}`))
	f.Add([]byte(`{"spec":{"replicas":0}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if o, err := decode(data); err == nil {
			_ = o.protectedByLabel()
			_, _ = countsOf(o, [][]string{SpecReplicas})
			_ = o.glass()
		}
	})
}
