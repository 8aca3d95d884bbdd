package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

const contextKind = "ResourceInterpreterContext"

// ask sends a request about an object to the webhook that handles it and returns the response. It sets the common
// fields of the request.
func (s *Set) ask(ctx context.Context, obj *unstructured.Unstructured, op configv1alpha1.InterpreterOperation, request configv1alpha1.ResourceInterpreterRequest) (*hook, *configv1alpha1.ResourceInterpreterResponse, error) {
	gvk := obj.GroupVersionKind()
	h := s.find(gvk, op)
	if h == nil {
		return nil, nil, fmt.Errorf("no interpreter webhook is configured for %s of %s", op, gvk)
	}
	if h.err != nil {
		return h, nil, h.err
	}
	raw, err := obj.MarshalJSON()
	if err != nil {
		return h, nil, fmt.Errorf("encoding the object for %s: %w", h.name, err)
	}
	request.UID = uuid.NewUUID()
	request.Kind = metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	request.Name, request.Namespace = obj.GetName(), obj.GetNamespace()
	request.Operation = op
	request.Object = runtime.RawExtension{Raw: raw}
	response, err := h.exchange(ctx, &request)
	if err != nil {
		return h, nil, fmt.Errorf("%s: %w", h.name, err)
	}
	return h, response, nil
}

func (h *hook) exchange(ctx context.Context, request *configv1alpha1.ResourceInterpreterRequest) (*configv1alpha1.ResourceInterpreterResponse, error) {
	body, err := json.Marshal(&configv1alpha1.ResourceInterpreterContext{
		TypeMeta: metav1.TypeMeta{APIVersion: configv1alpha1.GroupVersion.String(), Kind: contextKind},
		Request:  request,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	httpRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	httpRequest.Header.Set("Content-Type", "application/json")
	httpRequest.Header.Set("Accept", "application/json")
	httpResponse, err := h.client.Do(httpRequest)
	if err != nil {
		return nil, fmt.Errorf("the request failed: %w", err)
	}
	defer func() { _ = httpResponse.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(httpResponse.Body, maxResponseBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if len(answer) > maxResponseBytes {
		return nil, fmt.Errorf("the response has more than %d bytes", maxResponseBytes)
	}
	if httpResponse.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", httpResponse.Status)
	}
	return check(answer, request)
}

func check(answer []byte, request *configv1alpha1.ResourceInterpreterRequest) (*configv1alpha1.ResourceInterpreterResponse, error) {
	if err := checkQuantities(answer); err != nil {
		return nil, err
	}
	var reply configv1alpha1.ResourceInterpreterContext
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("decoding the response: %w", err)
	}
	// Webhooks built with Karmada's SDK leave both out.
	if typed := reply.APIVersion != "" || reply.Kind != ""; typed && (reply.APIVersion != configv1alpha1.GroupVersion.String() || reply.Kind != contextKind) {
		return nil, fmt.Errorf("the response is a %q of %q, not a %s of %s", reply.Kind, reply.APIVersion, contextKind, configv1alpha1.GroupVersion)
	}
	response := reply.Response
	if response == nil {
		return nil, errors.New("the answer holds no response")
	}
	if response.UID != request.UID {
		return nil, fmt.Errorf("the response is to request %q, not to %q", response.UID, request.UID)
	}
	if !response.Successful {
		if response.Status != nil {
			return nil, fmt.Errorf("the webhook declined with code %d: %s", response.Status.Code, response.Status.Message)
		}
		return nil, errors.New("the webhook declined without giving a reason")
	}
	if len(response.Patch) > 0 && (response.PatchType == nil || *response.PatchType != configv1alpha1.PatchTypeJSONPatch) {
		return nil, fmt.Errorf("the response holds a patch that is not of type %s", configv1alpha1.PatchTypeJSONPatch)
	}
	return response, nil
}

// checkQuantities rejects quantities whose decoding would take forever.
func checkQuantities(answer []byte) error {
	if !bytes.Contains(answer, []byte("resourceRequest")) {
		return nil
	}
	type requirements struct {
		ResourceRequest map[string]any `json:"resourceRequest"`
	}
	var reply struct {
		Response struct {
			ReplicaRequirements requirements `json:"replicaRequirements"`
			Components          []struct {
				ReplicaRequirements requirements `json:"replicaRequirements"`
			} `json:"components"`
		} `json:"response"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	all := []requirements{reply.Response.ReplicaRequirements}
	for _, component := range reply.Response.Components {
		all = append(all, component.ReplicaRequirements)
	}
	for _, r := range all {
		for name, value := range r.ResourceRequest {
			if _, err := podspec.Quantity(value); err != nil {
				return fmt.Errorf("the response requests %s: %w", name, err)
			}
		}
	}
	return nil
}

// change asks for a patch and applies it.
func (s *Set) change(ctx context.Context, obj *unstructured.Unstructured, op configv1alpha1.InterpreterOperation, request configv1alpha1.ResourceInterpreterRequest) (*unstructured.Unstructured, error) {
	h, response, err := s.ask(ctx, obj, op, request)
	if err != nil {
		return nil, err
	}
	if len(response.Patch) == 0 {
		return obj, nil
	}
	changed, err := patched(obj, response.Patch)
	if err != nil {
		return nil, fmt.Errorf("%s: applying its patch: %w", h.name, err)
	}
	return changed, nil
}

func patched(obj *unstructured.Unstructured, patch []byte) (changed *unstructured.Unstructured, err error) {
	// The patch is untrusted, and the library is not written for that.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	for _, operation := range operations {
		// Nested copies would exceed any limit on the patch itself.
		if operation.Kind() == "copy" {
			return nil, errors.New("operation copy is not supported")
		}
	}
	before, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, err
	}
	var root map[string]any
	if err := utiljson.Unmarshal(after, &root); err != nil {
		return nil, err
	}
	changed = fields.Object(root)
	return changed, kinds.SameIdentity(obj, changed)
}
