package kinds

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	conversion "k8s.io/apiserver/pkg/apis/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

var (
	discoveryScheme = runtime.NewScheme()
	discoveryCodecs = serializer.NewCodecFactory(discoveryScheme)
)

func init() {
	utilruntime.Must(apidiscoveryv2.AddToScheme(discoveryScheme))
	utilruntime.Must(apidiscoveryv2beta1.AddToScheme(discoveryScheme))
	utilruntime.Must(conversion.RegisterConversions(discoveryScheme))
}

// aggregatedList serves an aggregated discovery document, with an empty 304 where possible.
type aggregatedList struct {
	list *apidiscoveryv2.APIGroupDiscoveryList
	etag string
}

func newAggregatedList(list apidiscoveryv2.APIGroupDiscoveryList) *aggregatedList {
	content, _ := json.Marshal(list) // it was made from JSON
	return &aggregatedList{list: &list, etag: fmt.Sprintf("%X", sha512.Sum512(content))}
}

// ServeHTTP writes the document in the version and encoding that the client asks for.
func (a *aggregatedList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mediaType, _, err := negotiation.NegotiateOutputMediaType(r, discoveryCodecs, aggregated.DiscoveryEndpointRestrictions)
	if err == nil && mediaType.Convert == nil {
		err = apierrors.NewBadRequest("the Accept header names no version of the discovery document")
	}
	if err != nil {
		responsewriters.ErrorNegotiated(err, metaCodecs, schema.GroupVersion{Version: "v1"}, w, r)
		return
	}
	aggregated.ServeHTTPWithETag(a.list, a.etag, mediaType.Convert.GroupVersion(), discoveryCodecs, w, r)
}
