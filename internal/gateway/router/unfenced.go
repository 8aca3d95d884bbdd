package router

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// durableProbe changes nothing, and is refused by a cell that refuses writes of objects with the annotation.
const durableProbe = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"cellplane-fence-","annotations":{"` + names.DurabilityAnnotation + `":"` + names.DurabilityReplicated + `"}}}`

// fencedWithin bounds the wait for the answer to that. Without one the write is sent with care.
const fencedWithin = time.Second

// fenced reports whether the cell was seen to refuse writes of objects with the annotation, unless the gateway knows of it. A cell that was
// added or upgraded a moment ago may not do so yet.
func (d *durableWrite) fenced() bool {
	upstream := d.c.view.Upstreams[d.cell]
	if upstream == nil {
		return true // nothing is sent
	}
	return d.rt.Durability.Fenced(upstream, func() bool {
		ctx, cancel := context.WithTimeout(d.r.Context(), fencedWithin)
		defer cancel()
		_, err := exchangeJSON(ctx, upstream, forward.ToCell(d.c.scope(d.cell).Epoch), http.MethodPost, "/api/v1/namespaces/"+metav1.NamespaceDefault+"/configmaps",
			url.Values{"dryRun": {metav1.DryRunAll}}, []byte(durableProbe))
		return fence.Refusal(err) == fence.Durable
	})
}

// lookInside finds out what the object asks for, before and after the write, if the cell does not tell.
func (d *durableWrite) lookInside(name string, body []byte) error {
	if bytes.Contains(body, []byte(names.DurabilityAnnotation)) {
		d.mode = max(d.mode, durability.Preferred)
		if !bytes.Contains(body, []byte(names.DurabilityReplicatedPreferred)) {
			d.mode = durability.Replicated
		}
	}
	if name == "" || d.mode == durability.Replicated || d.c.Verb == "create" && d.c.Name == "" || !d.rt.Durability.InUse(d.c.view, d.cell) {
		return nil
	}
	return d.lookAtObject(name)
}

// askedIn returns what the object in an answer asks for. The answer can be read again.
func (d *durableWrite) askedIn(response *http.Response) durability.Mode {
	body, err := peekAnswer(d.r.Context(), response)
	if err != nil {
		return durability.Replicated // it is not known
	}
	if !bytes.Contains(body, []byte(names.DurabilityAnnotation)) {
		return durability.None
	}
	var object metav1.PartialObjectMetadata
	if utiljson.Unmarshal(body, &object) != nil {
		return durability.Replicated // in protobuf
	}
	return durability.Parse(object.Annotations[names.DurabilityAnnotation])
}
