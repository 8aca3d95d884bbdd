package serve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// question is a list or a watch.
type question struct {
	internalversion.ListOptions
	filter clustercache.Filter
	// version is the parsed ResourceVersion, 0 for "" and "0".
	version uint64
	// changed is closed when the set of shown clusters no longer is that of the filter.
	changed <-chan struct{}
}

// readQuestion reads the options of a list or a watch. The error can be written as it is.
func readQuestion(r *http.Request, info *request.RequestInfo, res *resource) (*question, error) {
	q := &question{}
	query := r.URL.Query()
	if len(query["shardSelector"]) > 0 {
		return nil, apierrors.NewBadRequest("shardSelector is not supported")
	}
	if err := metascheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	q.Watch = q.Watch || info.Verb == "watch"
	internalversion.SetListOptionsDefaults(&q.ListOptions, true)
	if errs := validation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	selected, err := res.selector(q.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if info.Name != "" { // from a path like watch/pods/name, or from the field selector
		named := fields.OneTermEqualSelector("metadata.name", info.Name)
		if selected == nil || selected.Empty() {
			selected = named
		} else if name, ok := selected.RequiresExactMatch("metadata.name"); !ok || name != info.Name {
			return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	q.filter = clustercache.Filter{Namespace: info.Namespace, Labels: q.LabelSelector, Fields: selected}
	if q.ResourceVersion != "" {
		if q.version, err = strconv.ParseUint(q.ResourceVersion, 10, 64); err != nil {
			if isNumber(q.ResourceVersion) {
				return q, expired() // a position of a merged list of another surface
			}
			return nil, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: not a resourceVersion", q.ResourceVersion))
		}
	}
	q.Continue = ownToken(q.Continue, info.Namespace, res.namespaced)
	if q.Continue != "" && q.version != 0 {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return q, nil
}

// ownToken translates a continue token in the form of API servers. Gateways that merge several shares send it. Other tokens are left to
// the store.
func ownToken(given, namespace string, namespaced bool) string {
	var token struct {
		APIVersion string `json:"v"`
		Version    int64  `json:"rv"` // -1 is the current version
		Start      string `json:"start"`
	}
	decoded, err := base64.RawURLEncoding.DecodeString(given)
	if err != nil || json.Unmarshal(decoded, &token) != nil || token.APIVersion != "meta.k8s.io/v1" {
		return given
	}
	name := strings.TrimSuffix(token.Start, "\x00")
	if namespaced && namespace == "" {
		namespace, name, _ = strings.Cut(name, "/")
	}
	return clustercache.ContinueAfter(uint64(max(token.Version, 0)), namespace, name)
}

func isNumber(text string) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != "" && text[0] != '0'
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the resourceVersion is too old or from another replica; list again and continue from there")
}
