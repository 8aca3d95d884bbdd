package fanout

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
)

// versions are the resourceVersions of targets by their names. As text they are the resourceVersion of a merged list.
type versions map[string]string

func (v versions) String() string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// merge merges the answers of targets: Tables to a Table, lists to a list, and several objects of one name to a list.
func (t *Transport) merge(answers []answer, path string, info *request.RequestInfo) answer {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(answers[0].body, &kind); err != nil {
		return failure(apierrors.NewInternalError(err))
	}
	if kind.Kind == "Table" {
		return t.mergeTables(answers, path, info)
	}
	return t.mergeObjects(answers, info)
}

func (t *Transport) mergeObjects(answers []answer, info *request.RequestInfo) answer {
	merged := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	at := versions{}
	for i, a := range answers {
		object := unstructured.Unstructured{}
		if err := json.Unmarshal(a.body, &object.Object); err != nil {
			t.fail(unreadable(a.target, err))
			continue
		}
		if info.Verb == "get" {
			mark(a.target, &object)
			merged.Items = append(merged.Items, object)
			continue
		}
		list, err := object.ToList()
		if err != nil || object.GetKind() == "Table" {
			t.fail(unreadable(a.target, errFormat))
			continue
		}
		if i == 0 {
			merged.SetAPIVersion(list.GetAPIVersion())
			merged.SetKind(list.GetKind())
		}
		at[a.target.Name] = list.GetResourceVersion()
		for j := range list.Items {
			mark(a.target, &list.Items[j])
		}
		merged.Items = append(merged.Items, list.Items...)
	}
	if info.Verb == "get" && len(merged.Items) == 1 {
		return encoded(merged.Items[0].Object)
	}
	merged.SetResourceVersion(at.String())
	return encoded(merged.UnstructuredContent())
}

// mark writes the cluster of an object on it.
func mark(target Target, object *unstructured.Unstructured) {
	if !target.Member {
		return
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[names.ClusterAnnotation] = target.Name
	object.SetAnnotations(annotations)
}

func encoded(object any) answer {
	body, err := json.Marshal(object)
	if err != nil {
		return failure(apierrors.NewInternalError(err))
	}
	return answer{body: body}
}

func unreadable(target Target, err error) error {
	return fmt.Errorf("%s", about(target, "cannot be shown: "+err.Error()))
}
